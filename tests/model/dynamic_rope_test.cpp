// Dynamic scaling of rotary embedding: frequencies depend on the sequence's length.
#include "qft/core/error.h"
#include "qft/model/transformer.h"

#include "tiny_config.h"
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/normal.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

namespace qft::model {
namespace {

constexpr std::int64_t kPositions = 8;

nlohmann::json dynamic(std::string_view type, std::int64_t positions, double factor) {
  auto config = base(type);
  config["max_position_embeddings"] = positions;
  config["rope_scaling"] = {{"rope_type", "dynamic"}, {"factor", factor}};
  return config;
}

ModelConfig parsed(const nlohmann::json& config) {
  return ModelConfig::parse(config.dump(), "x/config.json");
}

at::Tensor drawn(at::IntArrayRef shape, std::uint64_t seed, at::ScalarType dtype = at::kDouble) {
  return at::normal(0.0, 0.5, shape, at::detail::createCPUGenerator(seed), dtype);
}

/// Recorded from transformers 5.23: _compute_dynamic_ntk_parameters of a tensor, heads of 12, 32 positions, factor 2.5.
TEST(DynamicRope, FrequenciesAreThoseOfTransformers) {
  auto text = dynamic("llama", 32, 2.5);
  text["head_dim"] = 12;
  const ModelConfig c = parsed(text);
  const auto expect = [&](std::int64_t length, const std::vector<float>& recorded) {
    const auto ours = c.inverse_frequencies(length);
    ASSERT_EQ(ours.size(), recorded.size());
    for (std::size_t i = 0; i < recorded.size(); ++i)
      EXPECT_FLOAT_EQ(static_cast<float>(ours[i]), recorded[i]) << length << ", " << i;
  };
  const std::vector<float> plain = {
      1.0F, 0.2154434472322464F, 0.04641588404774666F, 0.009999999776482582F, 0.002154434332624078F, 0.00046415894757956266F};
  for (const std::int64_t length : {0, 1, 31, 32}) expect(length, plain);
  expect(64, {1.0F, 0.1676948517560959F, 0.02812155894935131F, 0.0047158412635326385F, 0.0007908221450634301F,
              0.00013261684216558933F});
  expect(1000, {1.0F, 0.09046055376529694F, 0.008183110505342484F, 0.0007402488263323903F, 6.696330092381686e-05F,
                6.057540758774849e-06F});
}

TEST(DynamicRope, BeginsAtMaxPositionEmbeddings) {
  auto text = dynamic("qwen2", 32, 4.0);
  text["rope_scaling"]["original_max_position_embeddings"] = 16;  // transformers ignores it too
  const ModelConfig c = parsed(text);
  EXPECT_FALSE(c.rope.scales_for(32));
  EXPECT_TRUE(c.rope.scales_for(33));
  EXPECT_EQ(c.first_positions(), 32);
  EXPECT_EQ(c.max_position_embeddings, 128) << "the positions that the scaling reaches";
  EXPECT_FALSE(parsed(base("qwen2")).rope.scales_for(1 << 30));
  text["rope_scaling"]["factor"] = 0.5;
  EXPECT_THROW(parsed(text), Error);
  text = dynamic("llama", 32, 2.0);
  text["head_dim"] = 2;
  EXPECT_THROW(parsed(text), Error) << "theta's power is 2 / 0";
  text = dynamic("qwen2", 32, 4.0);
  text.erase("max_position_embeddings");
  EXPECT_THROW(parsed(text), Error) << "the start of the scaling is unknown";
}

TEST(DynamicRope, ByKeyIsWhatLlamaFactoryWrites) {
  auto text = base("mistral");
  text["max_position_embeddings"] = 40;
  const ModelConfig scaled = parsed(text).scaled_to(100, "dynamic");
  const auto written = nlohmann::json::parse(scaled.raw);
  EXPECT_EQ(written["max_position_embeddings"], 120);
  EXPECT_EQ(written["rope_scaling"],
            (nlohmann::json{{"rope_type", "dynamic"}, {"factor", 3.0}, {"original_max_position_embeddings", 40}}));
  EXPECT_EQ(scaled.inverse_frequencies(120), parsed(text).inverse_frequencies());
  EXPECT_NE(scaled.inverse_frequencies(121), parsed(text).inverse_frequencies());
}

/// A model with own frequencies for sequences longer than kPositions tokens, and micro-batches for it.
class Dynamic : public ::testing::TestWithParam<const char*> {
 protected:
  Dynamic() : spec_(ModelSpec::build(parsed(dynamic(GetParam(), kPositions, 2.0)), Finetuning::full, {})) {}

  MicroInput input(const Transformer& t, std::vector<std::int32_t> bounds) {
    MicroInput in =
        MicroInput::build(std::vector<std::int32_t>(static_cast<std::size_t>(bounds.back()), 1), bounds, {}, {}, at::kCPU);
    in.angles = t.dynamic_angles(in, arena_);
    return in;
  }

  ModelSpec spec_;
  Arena arena_{at::kCPU};
};

TEST_P(Dynamic, AnglesAreThoseOfEachSequenceAlone) {
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    Transformer t(spec_, dtype, at::kCPU);
    t.ensure_positions(20);
    EXPECT_EQ(t.rope().max_positions(), kPositions) << "it has no rows for longer sequences";
    const MicroInput packed = input(t, {0, 9, 14, 34}), nine = input(t, {0, 9}), twenty = input(t, {0, 20});
    EXPECT_FALSE(input(t, {0, 5, 13}).angles) << "by position";
    ASSERT_TRUE(packed.angles && nine.angles && twenty.angles);
    const auto together = [&](at::Tensor ops::RopeTable::* part) {
      return at::cat({nine.angles->table.*part, (t.rope().*part).narrow(0, 0, 5), twenty.angles->table.*part});
    };
    EXPECT_TRUE(at::equal(packed.angles->table.cos, together(&ops::RopeTable::cos)));
    EXPECT_TRUE(at::equal(packed.angles->table.sin, together(&ops::RopeTable::sin)));
    EXPECT_FALSE(at::equal(twenty.angles->table.cos.narrow(0, 0, 9), nine.angles->table.cos));
    // Rotates the heads of a sequence with others and alone.
    const at::Tensor x = drawn({34, 3, 8}, 1).to(dtype), alone = x.narrow(0, 14, 20).clone();
    ops::rope(x, packed.angles->rows, packed.angles->table, ops::RopeDirection::forward);
    ops::rope(alone, twenty.angles->rows, twenty.angles->table, ops::RopeDirection::forward);
    EXPECT_TRUE(at::equal(x.narrow(0, 14, 20), alone));
  }
}

TEST_P(Dynamic, NewTokensOfADecodingPassHaveThoseOfTheLengthSoFar) {
  const Transformer t(spec_, at::kFloat, at::kCPU);
  const std::vector<TokenRange> below = {{0, 8}, {7, 1}}, mixed = {{8, 1}, {3, 1}, {0, 12}};
  EXPECT_FALSE(t.dynamic_angles(below, arena_));
  const auto angles = t.dynamic_angles(mixed, arena_);
  ASSERT_TRUE(angles);
  const ops::RopeTable::PositionRange expected[] = {{spec_.config.inverse_frequencies(9), 8, 1},
                                                    {spec_.config.inverse_frequencies(), 3, 1},
                                                    {spec_.config.inverse_frequencies(12), 0, 12}};
  EXPECT_TRUE(at::equal(angles->table.cos, ops::RopeTable::build(expected, at::kFloat, at::kCPU).cos));
  EXPECT_EQ(angles->rows.numel(), 14);
}

/// In fp64, a layer's output and gradients for sequences together equal each sequence's own; one is longer than the positions,
/// one is not.
TEST_P(Dynamic, LayersOfSequencesTogetherAreThoseOfEach) {
  Transformer t(spec_, at::kDouble, at::kCPU);
  t.ensure_positions(17);
  const UnitSpec& unit = spec_.units[1];
  UnitBuffers flat{at::empty({0}, at::kDouble), drawn({unit.trainable_numel}, 2), {}};
  const auto run = [&](const std::vector<std::int32_t>& bounds, const at::Tensor& x, const at::Tensor& gy) {
    flat.grad = at::zeros_like(flat.trainable);
    const MicroInput in = input(t, bounds);
    const LayerWeights weights = bind_layer(spec_, unit, flat);
    const LayerSaved saved = t.allocate_saved(0, weights, x, arena_);
    const at::Tensor y = at::empty_like(x), g = gy.clone();
    t.layer_forward(0, weights, in, {}, y, saved);
    t.layer_backward(0, weights, in, {}, saved, g, true);
    return std::vector<at::Tensor>{y, g, flat.grad};
  };
  const at::Tensor x = drawn({17, 24}, 3), gy = drawn({17, 24}, 4);
  const auto both = run({0, 11, 17}, x, gy);
  const auto first = run({0, 11}, x.narrow(0, 0, 11).clone(), gy.narrow(0, 0, 11)),
             second = run({0, 6}, x.narrow(0, 11, 6).clone(), gy.narrow(0, 11, 6));
  const auto expect_close = [](const at::Tensor& a, const at::Tensor& b) {
    EXPECT_LE((a - b).abs().max().item<double>(), 1e-12 * b.abs().max().item<double>());
  };
  for (const std::size_t what : {0, 1}) expect_close(both[what], at::cat({first[what], second[what]}));
  expect_close(both[2], first[2] + second[2]);
}

TEST_P(Dynamic, ALongSequenceWithoutItsAnglesIsOutsideOfTheTable) {
  Transformer t(spec_, at::kDouble, at::kCPU);
  t.ensure_positions(11);
  MicroInput in = input(t, {0, 11});
  const at::Tensor x = drawn({11, 3, 8}, 1);
  EXPECT_THROW(ops::rope(x, in.positions, t.rope(), ops::RopeDirection::forward), Error);
}

INSTANTIATE_TEST_SUITE_P(Architectures, Dynamic, ::testing::Values("llama", "qwen2", "mistral"));

}  // namespace
}  // namespace qft::model
