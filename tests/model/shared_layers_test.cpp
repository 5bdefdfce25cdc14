// Sub-layers that tensor ranks share: the outputs and gradients of all ranks add up to those of one rank, in fp64. The ranks run
// one after another; a rank's weights are its boxes of the same tensors.
#include "qft/core/error.h"
#include "qft/model/transformer.h"

#include <map>
#include <string>
#include <vector>

#include "model/architecture.h"
#include "tiny_config.h"
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/normal.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

namespace qft::model {
namespace {

at::Tensor random_rows(at::IntArrayRef shape, std::uint64_t seed) {
  return at::normal(0.0, 0.5, shape, at::detail::createCPUGenerator(seed), at::kDouble);
}

/// What a sub-layer computes from the same x and gy; gradients by name, whole tensors with zeros where a rank has no box.
struct Computed {
  at::Tensor out, gx;
  std::map<std::string, at::Tensor> grads;

  void add(const Computed& other) {
    out = out.defined() ? out + other.out : other.out;
    gx = gx.defined() ? gx + other.gx : other.gx;
    for (const auto& [name, grad] : other.grads) grads[name] = grads.contains(name) ? grads[name] + grad : grad;
  }
};

/// Returns where the elements of a parameter's boxes lie in its whole tensor.
at::Tensor places(const ParamSpec& p) {
  const at::Tensor index = at::empty({p.numel}, at::kLong);
  for (std::int64_t i = 0; i < p.numel; ++i) index.data_ptr<std::int64_t>()[i] = logical_index(p, i);
  return index;
}

/// A layer with random weights that depend on the parameters' names only.
UnitBuffers buffers_of(const ModelSpec& spec, const UnitSpec& unit) {
  UnitBuffers flat{at::zeros({unit.frozen_numel}, at::kDouble), at::zeros({unit.trainable_numel}, at::kDouble), {}};
  flat.derived = at::zeros({unit.derived_numel}, at::kDouble);
  flat.grad = at::zeros_like(flat.trainable);
  for (const ParamSpec& p : unit.params) {
    const at::Tensor whole =
        random_rows({static_cast<std::int64_t>(Box::whole(p.shape).elements())}, std::hash<std::string>()(p.name));
    param_view(p, flat).copy_(at::index_select(whole, 0, places(p)));
  }
  derive_values(spec, unit, flat);
  return flat;
}

Computed compute(const ModelSpec& spec, std::size_t layer, std::size_t index) {
  const UnitSpec& unit = spec.units[layer + 1];
  const UnitBuffers flat = buffers_of(spec, unit);
  Transformer transformer(spec, at::kDouble, at::kCPU);
  transformer.ensure_positions(6);
  const std::vector<std::int32_t> tokens(11, 1), bounds = {0, 5, 11};
  const MicroInput in = MicroInput::build(tokens, bounds, {}, {}, at::kCPU);
  LayerWeights weights = bind_layer(spec, unit, flat);
  const auto groups = spec.layers[layer][index].linears();
  for (std::size_t g = 0; g < groups.size(); ++g)  // one rank adds the bias of a sum
    if (groups[g]->linears.front().split == Split::columns && spec.share.rank != 0)
      weights[index].linears[g].weights.bias = weights[index].linears[g].grads.bias = at::Tensor();
  Arena arena(at::kCPU);
  const at::Tensor x = random_rows({11, spec.config.hidden_size}, 3), gy = random_rows(x.sizes(), 4);
  const LayerSaved saved = transformer.allocate_saved(static_cast<int>(layer), weights, x, arena);
  const auto code = make_sublayer(spec.config, spec.layers[layer][index]);
  const LayerPass pass{in.positions,       &in.sequences,           {0.0, {}, in.identity},
                       transformer.rope(), transformer.workspace(), at::kDouble};
  Computed all{at::empty_like(x), at::empty_like(x), {}};
  code->forward(weights[index], x, pass, saved.sublayers[index], all.out);
  code->backward(weights[index], x, pass, saved.sublayers[index], gy, all.gx, ops::GradMode::write);
  for (const ParamSpec& p : unit.params) {
    if (!p.trainable) continue;
    const at::Tensor whole = at::zeros({static_cast<std::int64_t>(Box::whole(p.shape).elements())}, at::kDouble);
    all.grads[p.name] = whole.index_copy_(0, places(p), flat.grad.narrow(0, p.offset, p.numel));
  }
  return all;
}

void expect_equal(const at::Tensor& sum, const at::Tensor& whole, const std::string& what) {
  EXPECT_LE((sum - whole).abs().max().item<double>(), 1e-12 * (1 + whole.abs().max().item<double>())) << what;
}

ModelConfig config_with(std::string_view type, int kv_heads) {
  auto config = base(type);
  config.update({{"num_hidden_layers", 4},
                 {"head_dim", 8},
                 {"num_attention_heads", 6},
                 {"num_key_value_heads", kv_heads},
                 {"linear_num_key_heads", 4},
                 {"linear_num_value_heads", 8},
                 {"linear_key_head_dim", 6},
                 {"linear_value_head_dim", 4}});
  const Architecture& row = architecture_of(std::string(type), "test");
  for (const Bias& bias : {row.qkv, row.o, row.mlp})
    if (bias.key != nullptr) config[bias.key] = true;
  return ModelConfig::parse(config.dump(), "test");
}

TEST(SharedLayers, OfAllRanksAddUpToTheWhole) {
  LoraConfig lora;
  lora.rank = 3;
  lora.alpha = 6;
  lora.set_targets(
      "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj,in_proj_qkv,in_proj_z,in_proj_qkvz,in_proj_ba,out_proj");
  OftConfig oft;
  oft.block_size = 4;
  oft.set_targets("q_proj,k_proj,o_proj,in_proj_qkv,in_proj_qkvz,out_proj");
  int compared = 0;
  for (const std::string_view type : architectures())
    for (const AdapterConfig& adapter : {AdapterConfig(), AdapterConfig(lora), AdapterConfig(oft)})
      for (const int kv_heads : {6, 2}) {
        const ModelConfig config = config_with(type, kv_heads);
        const auto spec_for = [&](Share share) {
          return ModelSpec::build(config, adapter.enabled() ? Finetuning::adapter : Finetuning::full, adapter, {},
                                  Head::language_model, {}, share);
        };
        const ModelSpec whole = spec_for({});
        for (const int ranks : {2, 3, 4}) {
          if (kv_heads == 2 && ranks == 3) continue;
          std::vector<ModelSpec> specs;
          for (int rank = 0; rank < ranks; ++rank) specs.push_back(spec_for({rank, ranks}));
          for (const std::size_t layer : {std::size_t{0}, std::size_t{3}})
            for (std::size_t i = 0; i < 2; ++i) {
              const SubLayerKind kind = whole.layers[layer][i].kind;
              // Every rank has all experts; a norm over the heads of all ranks needs their squares.
              if (kind == SubLayerKind::experts || (kind == SubLayerKind::attention && config.qk_norm == QkNorm::whole)) continue;
              SCOPED_TRACE(fmt::format("{}{}{}, {} key heads, {} ranks, layer {}, sub-layer {}", type,
                                       adapter.lora.enabled() ? ", LoRA" : "", adapter.oft.enabled() ? ", OFT" : "", kv_heads,
                                       ranks, layer, i));
              const Computed one = compute(whole, layer, i);
              Computed sum;
              for (const ModelSpec& spec : specs) sum.add(compute(spec, layer, i));
              expect_equal(sum.out, one.out, "output");
              expect_equal(sum.gx, one.gx, "gradient of the input");
              for (const auto& [name, grad] : one.grads) expect_equal(sum.grads.at(name), grad, name);
              ++compared;
            }
        }
      }
  EXPECT_GT(compared, 200);
}

}  // namespace
}  // namespace qft::model
