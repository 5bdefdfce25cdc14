// A layer of ranks that share sequences by heads: outputs, gradients of inputs, and the sum of the weights' gradients are those
// of one rank, in fp64. Cuts lie within sequences, and ranks may have no row.
#include "qft/core/error.h"
#include "qft/model/transformer.h"

#include <string>
#include <vector>

#include "support/world.h"
#include "tiny_config.h"
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/normal.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

namespace qft::model {
namespace {

/// Sequences of a micro-batch, and how many first tokens each shares with the one before it.
struct Batch {
  std::vector<std::int32_t> bounds, shared = {};
};

struct Result {
  at::Tensor y, gx, grad;
};

at::Tensor random_values(at::IntArrayRef shape, std::uint64_t seed) {
  return at::normal(0.0, 0.5, shape, at::detail::createCPUGenerator(seed), at::kDouble);
}

/// Runs a layer forward and backward with some of its rows. The rows of y and gx are this rank's, and the gradient is its term.
Result run(const ModelConfig& config, int layer, const Batch& batch, const RowSharing& context) {
  const ModelSpec spec =
      ModelSpec::build(config, Finetuning::full, {}, {}, Head::language_model, {}, {}, {context.rank(), context.ranks()});
  const UnitSpec& unit = spec.units[static_cast<std::size_t>(layer) + 1];
  UnitBuffers flat{{}, random_values({unit.trainable_numel}, 1), {}};
  flat.grad = at::zeros_like(flat.trainable);
  Transformer transformer(spec, at::kDouble, at::kCPU, {}, context);
  const std::vector<std::int32_t> tokens(static_cast<std::size_t>(batch.bounds.back()), 1);
  MicroInput in = MicroInput::build(tokens, batch.bounds, {}, {}, at::kCPU, {}, batch.shared);
  in.routing = Routing::build(config, in.sequences, at::kDouble, at::kCPU, {}, context);
  in.keep_rows_of(context);
  transformer.ensure_positions(in.sequences.max_length);
  const std::int64_t rows = in.sequences.num_rows(), hidden = config.hidden_size;
  const OwnRows own = context.rows_of(rows);
  Arena arena(at::kCPU);
  const at::Tensor x = own.of(random_values({rows, hidden}, 2)).clone(), gx = own.of(random_values({rows, hidden}, 3)).clone();
  const LayerWeights weights = bind_layer(spec, unit, flat);
  const LayerSaved saved = transformer.allocate_saved(layer, weights, x, arena, &in);
  const at::Tensor y = at::empty_like(x);
  transformer.layer_forward(layer, weights, in, {}, y, saved);
  transformer.observe_routing(layer, in, saved);
  in.routing.add_up({}, context);
  transformer.layer_backward(layer, weights, in, {}, saved, gx, /*needs_input_grad=*/true, {0.3, 0.02});
  return {y, gx, flat.grad};
}

void expect_equal(const at::Tensor& got, const at::Tensor& want, const char* what) {
  ASSERT_EQ(got.sizes(), want.sizes()) << what;
  if (got.numel() == 0) return;
  EXPECT_LE((got - want).abs().max().item<double>(), 1e-11 * (1.0 + want.abs().max().item<double>())) << what;
}

void compare(const ModelConfig& config, int layer) {
  const RowSharing context(world());
  for (const Batch& batch : {Batch{{0, 2}}, Batch{{0, 5, 7, 16}}, Batch{{0, 1, 14}}, Batch{{0, 9, 19, 24}, {0, 6, 0}}}) {
    SCOPED_TRACE(fmt::format("{} tokens", batch.bounds.back()));
    const Result one = run(config, layer, batch, {}), mine = run(config, layer, batch, context);
    const OwnRows own = context.rows_of(one.y.size(0));
    expect_equal(mine.y, own.of(one.y), "output");
    expect_equal(mine.gx, own.of(one.gx), "gradient of the input");
    context.sum(mine.grad);
    expect_equal(mine.grad, one.grad, "gradients of the weights");
  }
}

ModelConfig config_with(const char* type, nlohmann::json keys) {
  nlohmann::json config = base(type);
  config.update({{"num_hidden_layers", 4}, {"num_attention_heads", 4}, {"head_dim", 8}});
  config.update(keys);
  return ModelConfig::parse(config.dump(), "test");
}

TEST(ContextLayer, OfAttentionIsTheLayerOfOneRank) {
  for (const int kv_heads : {1, 2, 4}) {
    SCOPED_TRACE(fmt::format("{} key heads", kv_heads));
    const nlohmann::json keys = {{"num_key_value_heads", kv_heads}};
    for (const char* type : {"llama", "qwen3", "olmo2"}) {
      SCOPED_TRACE(type);
      compare(config_with(type, keys), 0);
    }
  }
}

TEST(ContextLayer, OfHeadsThatDivideBadlyIsTheLayerOfOneRank) {
  compare(config_with("qwen3", {{"num_attention_heads", 10}, {"num_key_value_heads", 2}}), 0);
}

TEST(ContextLayer, WithAWindowIsTheLayerOfOneRank) {
  compare(
      config_with("qwen2",
                  {{"num_key_value_heads", 2}, {"use_sliding_window", true}, {"max_window_layers", 0}, {"sliding_window", 3}}),
      0);
}

TEST(ContextLayer, OfHybridsIsTheLayerOfOneRank) {
  const nlohmann::json keys = {{"num_key_value_heads", 2},
                               {"linear_num_key_heads", 2},
                               {"linear_num_value_heads", 6},
                               {"linear_key_head_dim", 6},
                               {"linear_value_head_dim", 4}};
  for (const char* type : {"qwen3_5_text", "qwen3_next"})
    for (const int layer : {0, 3}) {  // a delta net, attention with gates
      SCOPED_TRACE(fmt::format("{}, layer {}", type, layer));
      compare(config_with(type, keys), layer);
    }
}

TEST(ContextLayer, OfExpertsIsTheLayerOfOneRank) {
  compare(config_with("qwen2_moe", {{"num_key_value_heads", 2}, {"num_experts", 5}}), 0);
}

TEST(ContextLayer, NeedsAHeadForEachRank) {
  const ModelConfig config = config_with("qwen3", {{"num_attention_heads", 6}, {"num_key_value_heads", 2}});
  const auto build = [&](Share share, Share context) {
    return ModelSpec::build(config, Finetuning::full, {}, {}, Head::language_model, {}, share, context);
  };
  EXPECT_NO_THROW(build({}, {0, 6}));
  EXPECT_NO_THROW(build({0, 2}, {0, 3}));
  const auto message = [&](Share share, Share context) -> std::string {
    try {
      build(share, context);
    } catch (const ConfigError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(message({}, {0, 7})
                .find("context_parallel: 7 ranks cannot share the 6 query heads and 2 key and value heads of "
                      "model.layers.0.self_attn: leave out context_parallel"),
            std::string::npos)
      << message({}, {0, 7});
  EXPECT_NE(
      message({0, 4}, {0, 2}).find("of which tensor_parallel: 4 gives a rank 1: leave out context_parallel, or set a smaller"),
      std::string::npos)
      << message({0, 4}, {0, 2});
}

}  // namespace
}  // namespace qft::model
