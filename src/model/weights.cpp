#include "qft/model/weights.h"

#include <initializer_list>

#include "qft/core/error.h"

namespace qft::model {
namespace {

const ParamSpec* find(const UnitSpec& unit, TensorKind kind) {
  for (const auto& p : unit.params)
    if (p.role == Role::base && p.kind == kind) return &p;
  return nullptr;
}

const ParamSpec* find_lora(const UnitSpec& unit, Role role, Module module) {
  for (const auto& p : unit.params)
    if (p.role == role && p.module == module) return &p;
  return nullptr;
}

/// Adjacent parameters, seen as one: rows add up, the other dimension stays.
Weight bind_group(const UnitSpec& unit, std::initializer_list<TensorKind> kinds, const FlatBuffers& flat) {
  const ParamSpec* first = find(unit, *kinds.begin());
  if (first == nullptr) return {};
  std::vector<std::int64_t> shape = first->shape;
  shape[0] = 0;
  std::int64_t end = first->offset;
  for (const TensorKind kind : kinds) {
    const ParamSpec* p = find(unit, kind);
    QFT_ASSERT(p != nullptr && p->offset == end && p->trainable == first->trainable, "{}: {} is not adjacent to its group",
               unit.name, first->name);
    end += p->numel;
    shape[0] += p->shape[0];
  }
  const auto view = [&](const at::Tensor& buffer) {
    return buffer.defined() ? buffer.narrow(0, first->offset, end - first->offset).view(shape) : at::Tensor();
  };
  return {view(first->trainable ? flat.trainable : flat.frozen), first->trainable ? view(flat.grad) : at::Tensor()};
}

Projection bind_projection(const ModelSpec& spec, const UnitSpec& unit, const FlatBuffers& flat,
                           std::initializer_list<TensorKind> weights, std::initializer_list<TensorKind> biases,
                           std::initializer_list<Module> modules) {
  Projection p;
  const Weight w = bind_group(unit, weights, flat), b = bind_group(unit, biases, flat);
  p.weights.weight = w.value;
  p.grads.weight = w.grad;
  p.weights.bias = b.value;
  p.grads.bias = b.grad;
  std::int64_t row0 = 0;
  for (const Module module : modules) {
    const std::int64_t rows = module_shape(spec.config, module)[0];
    const ParamSpec *a = find_lora(unit, Role::lora_a, module), *bb = find_lora(unit, Role::lora_b, module);
    if (a != nullptr && bb != nullptr) {
      const auto view = [](const at::Tensor& buffer, const ParamSpec& q) {
        return buffer.defined() ? buffer.narrow(0, q.offset, q.numel).view(q.shape) : at::Tensor();
      };
      p.weights.lora.push_back({view(flat.trainable, *a), view(flat.trainable, *bb), row0, rows, spec.lora.scaling(),
                                static_cast<std::uint32_t>(module)});
      if (flat.grad.defined()) p.grads.lora.push_back({view(flat.grad, *a), view(flat.grad, *bb)});
    }
    row0 += rows;
  }
  return p;
}

}  // namespace

bool Projection::needs_input() const { return grads.weight.defined() || !grads.lora.empty(); }

LayerWeights bind_layer(const ModelSpec& spec, const UnitSpec& unit, const FlatBuffers& flat) {
  using K = TensorKind;
  using M = Module;
  LayerWeights w;
  w.input_norm = bind_weight(unit, K::input_norm, flat);
  w.post_norm = bind_weight(unit, K::post_norm, flat);
  if (spec.config.qk_norm) {
    w.q_norm = bind_weight(unit, K::q_norm, flat);
    w.k_norm = bind_weight(unit, K::k_norm, flat);
  }
  w.qkv = bind_projection(spec, unit, flat, {K::q_weight, K::k_weight, K::v_weight}, {K::q_bias, K::k_bias, K::v_bias},
                          {M::q_proj, M::k_proj, M::v_proj});
  w.o = bind_projection(spec, unit, flat, {K::o_weight}, {K::o_bias}, {M::o_proj});
  w.gate_up = bind_projection(spec, unit, flat, {K::gate_weight, K::up_weight}, {K::gate_bias, K::up_bias},
                              {M::gate_proj, M::up_proj});
  w.down = bind_projection(spec, unit, flat, {K::down_weight}, {K::down_bias}, {M::down_proj});
  return w;
}

Weight bind_weight(const UnitSpec& unit, TensorKind kind, const FlatBuffers& flat) {
  const Weight w = bind_group(unit, {kind}, flat);
  QFT_ASSERT(w.value.defined(), "unit {} has no tensor of kind {}", unit.name, static_cast<int>(kind));
  return w;
}

at::Tensor param_view(const ParamSpec& param, const at::Tensor& frozen, const at::Tensor& trainable) {
  return (param.trainable ? trainable : frozen).narrow(0, param.offset, param.numel);
}

}  // namespace qft::model
