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

/// Returns what each sub-layer of a layer computes. Gradients are those of the whole layer's parameters.
std::vector<Computed> compute(const ModelSpec& spec, std::size_t layer) {
  const UnitSpec& unit = spec.units[layer + 1];
  const UnitBuffers flat = buffers_of(spec, unit);
  Transformer transformer(spec, at::kDouble, at::kCPU);
  transformer.ensure_positions(6);
  const std::vector<std::int32_t> tokens(11, 1), bounds = {0, 5, 11};
  const MicroInput in = MicroInput::build(tokens, bounds, {}, {}, at::kCPU);
  LayerWeights weights = bind_layer(spec, unit, flat);
  Arena arena(at::kCPU);
  const at::Tensor x = random_rows({11, spec.config.hidden_size}, 3), gy = random_rows(x.sizes(), 4);
  const LayerSaved saved = transformer.allocate_saved(static_cast<int>(layer), weights, x, arena);
  const LayerPass pass{in.positions,       &in.sequences,           {0.0, {}, in.identity},
                       transformer.rope(), transformer.workspace(), at::kDouble};
  std::vector<Computed> all;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const SubLayerSpec& sublayer = spec.layers[layer][i];
    const auto groups = sublayer.linears();
    for (std::size_t g = 0; g < groups.size(); ++g)  // one rank adds the bias of a sum
      if (groups[g]->linears.front().split == Split::columns && spec.share.rank != 0)
        weights[i].linears[g].weights.bias = weights[i].linears[g].grads.bias = at::Tensor();
    Computed& c = all.emplace_back(Computed{at::empty_like(x), at::empty_like(x), {}});
    const auto code = make_sublayer(spec.config, sublayer);
    code->forward(weights[i], x, pass, saved.sublayers[i], c.out);
    code->backward(weights[i], x, pass, saved.sublayers[i], gy, c.gx, ops::GradMode::write);
  }
  for (const ParamSpec& p : unit.params) {
    if (!p.trainable) continue;
    const at::Tensor whole = at::zeros({static_cast<std::int64_t>(Box::whole(p.shape).elements())}, at::kDouble);
    all.front().grads[p.name] = whole.index_copy_(0, places(p), flat.grad.narrow(0, p.offset, p.numel));
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

/// True if tensor ranks share the sub-layer without exchanges inside: every rank has all experts, and a norm over the heads of
/// all ranks needs their squares.
bool shared_alone(const SubLayerSpec& sublayer, const ModelConfig& config) {
  return sublayer.kind != SubLayerKind::experts && (sublayer.kind != SubLayerKind::attention || config.qk_norm != QkNorm::whole);
}

void expect_sum(const ModelConfig& config, const AdapterConfig& adapter, int ranks, std::size_t layer) {
  const auto spec_for = [&](Share share) {
    return ModelSpec::build(config, adapter.enabled() ? Finetuning::adapter : Finetuning::full, adapter, {}, Head::language_model,
                            {}, share);
  };
  const ModelSpec whole = spec_for({});
  const std::vector<Computed> one = compute(whole, layer);
  std::vector<Computed> sum(one.size());
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<Computed> mine = compute(spec_for({rank, ranks}), layer);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i].add(mine[i]);
  }
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const SubLayerSpec& sublayer = whole.layers[layer][i];
    if (!shared_alone(sublayer, config)) continue;
    expect_equal(sum[i].out, one[i].out, fmt::format("output of sub-layer {}", i));
    expect_equal(sum[i].gx, one[i].gx, fmt::format("gradient of the input of sub-layer {}", i));
    for (const auto& [name, grad] : one.front().grads)
      for (const ParamGroup& group : sublayer.params) {
        const std::string& path = group.linears.empty() ? group.tensor : group.linears.front().path;
        const std::string module = path.substr(0, path.find('.') + 1);  // "mlp."
        if (name.find("." + module) != std::string::npos) expect_equal(sum.front().grads.at(name), grad, name);
      }
  }
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
  for (const std::string_view type : {"qwen2", "qwen3", "qwen3_5_text", "qwen3_next", "olmo2", "arcee"})
    for (const AdapterConfig& adapter : {AdapterConfig(), AdapterConfig(lora), AdapterConfig(oft)})
      for (const int kv_heads : {6, 2}) {
        SCOPED_TRACE(fmt::format("{}{}{}, {} key heads", type, adapter.lora.enabled() ? ", LoRA" : "",
                                 adapter.oft.enabled() ? ", OFT" : "", kv_heads));
        const ModelConfig config = config_with(type, kv_heads);
        if (!config.recurrent.empty()) expect_sum(config, adapter, 4, 3);  // attention
        expect_sum(config, adapter, 4, 0);
        if (kv_heads == 6) expect_sum(config, adapter, 3, 0);
      }
}

}  // namespace
}  // namespace qft::model
