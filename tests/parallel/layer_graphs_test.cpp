// Graph shapes, and which calls run as graphs.
#include "qft/parallel/layer_graphs.h"

#include "qft/device/device.h"

#include "tiny_run.h"
#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

namespace qft::parallel::testing {
namespace {

TEST(GraphShapes, AddAnEighthAtMost) {
  EXPECT_EQ(padded_tokens(1), 64);
  EXPECT_EQ(padded_tokens(64), 64);
  EXPECT_EQ(padded_tokens(513), 576);
  EXPECT_EQ(padded_tokens(1019), 1024);
  EXPECT_EQ(padded_tokens(1025), 1152);
  std::int64_t before = 0;
  for (std::int64_t n = 1; n < 20000; ++n) {
    const std::int64_t shape = padded_tokens(n);
    ASSERT_GE(shape, n);
    ASSERT_GE(shape, before);
    ASSERT_EQ(padded_tokens(shape), shape);
    ASSERT_LE(shape - n, std::max<std::int64_t>(63, n / 8)) << n;
    before = shape;
  }
}

TEST(GraphShapes, HoldThePaddingAsASequence) {
  EXPECT_EQ(GraphShape::of(1000, 1), (GraphShape{1024, 2}));
  EXPECT_EQ(GraphShape::of(1024, 4), (GraphShape{1024, 8}));
  EXPECT_EQ(GraphShape::of(1100, 100), (GraphShape{1152, 128}));
}

/// The first layer of a small model, run alone.
class OneLayer {
 public:
  explicit OneLayer(c10::Device device) : OneLayer(device, device.is_cpu() ? at::kDouble : at::kBFloat16) {}
  OneLayer(c10::Device device, at::ScalarType dtype, const model::ModelSpec& spec = make_spec({.lora = true}))
      : spec_(spec), transformer_(spec_, dtype, device), arena_(device), graphs_(transformer_) {
    transformer_.ensure_positions(4096);
    use_weights(0.01);
  }

  /// Uses new memory for the weights.
  void use_weights(double value) {
    const model::UnitSpec& unit = spec_.units[1];
    flat_ = {filled(unit.frozen_numel, value), filled(unit.trainable_numel, value), {}};
    decode(value);
  }

  /// Decodes the quantised weights into new memory.
  void decode(double value) {
    if (spec_.units[1].quantized_numel > 0) flat_.decoded = filled(spec_.units[1].quantized_numel, value);
    weights_ = std::make_shared<model::LayerWeights>(model::bind_layer(spec_, spec_.units[1], flat_));
  }

  /// Runs forward over a sequence of `tokens` tokens, in place 0; `gap` bytes shift all activations.
  at::Tensor run(std::int64_t tokens, std::int64_t gap = 0) {
    const std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens), 1), bounds = {0, static_cast<std::int32_t>(tokens)};
    const auto& in = graphs_.admit(0, model::MicroInput::build(ids, bounds, {}, {}, transformer_.device()));
    arena_.release({});
    if (gap > 0) arena_.alloc({gap}, at::kByte);
    const at::Tensor x = arena_.alloc({in.num_tokens(), spec_.config.hidden_size}, transformer_.dtype()).fill_(0.5);
    LayerCall call;
    call.flat = flat_;
    call.weights = weights_;
    call.y = arena_.alloc(x.sizes(), transformer_.dtype()).fill_(-1.0);
    call.saved = transformer_.allocate_saved(0, *weights_, x, arena_);
    graphs_.run(0, call);
    return call.y.narrow(0, 0, tokens).clone();
  }

  /// Runs forward without a graph and without padding.
  at::Tensor run_plainly(std::int64_t tokens) {
    const std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens), 1), bounds = {0, static_cast<std::int32_t>(tokens)};
    const auto in = model::MicroInput::build(ids, bounds, {}, {}, transformer_.device());
    arena_.release({});
    const at::Tensor x = arena_.alloc({tokens, spec_.config.hidden_size}, transformer_.dtype()).fill_(0.5), y = at::empty_like(x);
    transformer_.layer_forward(0, *weights_, in, {}, y, transformer_.allocate_saved(0, *weights_, x, arena_));
    return y;
  }

  const LayerGraphs::Counts& counts() const { return graphs_.counts(); }
  model::Transformer& transformer() { return transformer_; }

 private:
  at::Tensor filled(std::int64_t count, double value) const {
    return at::empty({count}, at::TensorOptions().dtype(transformer_.dtype()).device(transformer_.device())).fill_(value);
  }

  model::ModelSpec spec_;
  model::Transformer transformer_;
  model::Arena arena_;
  LayerGraphs graphs_;
  model::UnitBuffers flat_;
  std::shared_ptr<const model::LayerWeights> weights_;
};

/// True: on a GPU, with CUDA graphs.
class LayerGraphsTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam() && device::device_count("cuda") == 0) GTEST_SKIP() << "no GPU";
  }
  c10::Device device() const { return GetParam() ? c10::Device(at::kCUDA, 0) : c10::Device(at::kCPU); }
};

TEST_P(LayerGraphsTest, RunByKernelsThenAreCapturedAndReplayed) {
  OneLayer layer(device());
  const at::Tensor first = layer.run(50);
  EXPECT_EQ(layer.counts().uncaptured, 1);
  EXPECT_EQ(layer.counts().captured, 0);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(at::equal(layer.run(50), first));
  EXPECT_TRUE(at::equal(layer.run(60).narrow(0, 0, 50), first)) << "the same shape, and rows see none after them";
  EXPECT_EQ(layer.counts().uncaptured, 1);
  EXPECT_EQ(layer.counts().captured, 1);
  EXPECT_EQ(layer.counts().replayed, 4);
  EXPECT_EQ(layer.counts().moved, 0);
}

// The CPU's own bf16 attention, whose packed sequences include the padding and empty sequences.
TEST(LayerGraphsInBf16, HaveTheValuesOfTheSequencesAlone) {
  OneLayer layer(at::kCPU, at::kBFloat16);
  for (const std::int64_t tokens : {50, 64, 70}) {
    const at::Tensor expected = layer.run_plainly(tokens).to(at::kDouble);
    for (int i = 0; i < 3; ++i)
      EXPECT_TRUE(at::allclose(layer.run(tokens).to(at::kDouble), expected, 1.0 / 128, 1e-6)) << tokens << " tokens, call " << i;
  }
}

TEST_P(LayerGraphsTest, StartOverWhereScratchMemoryHasMoved) {
  OneLayer layer(device());
  const at::Tensor first = layer.run(50);
  layer.run(50);
  layer.transformer().workspace().clear();
  EXPECT_TRUE(at::equal(layer.run(50), first));
  EXPECT_EQ(layer.counts().moved, 1);
  EXPECT_EQ(layer.counts().uncaptured, 2);
  EXPECT_TRUE(at::equal(layer.run(50), first));
  EXPECT_EQ(layer.counts().captured, 2);
}

TEST_P(LayerGraphsTest, StartOverWhereActivationsOrWeightsHaveMoved) {
  OneLayer layer(device());
  const at::Tensor first = layer.run(50);
  layer.run(50);
  EXPECT_TRUE(at::equal(layer.run(50, 4096), first));
  EXPECT_EQ(layer.counts().moved, 1);
  EXPECT_TRUE(at::equal(layer.run(50, 4096), first));
  layer.use_weights(0.02);
  EXPECT_FALSE(at::equal(layer.run(50, 4096), first)) << "other weights";
  EXPECT_EQ(layer.counts().moved, 2);
}

/// A unit's quantised weights are decoded anew at each acquire, at another address than in the step before.
TEST_P(LayerGraphsTest, StartOverWhereDecodedWeightsHaveMoved) {
  model::LoraConfig lora;
  lora.rank = 3;
  lora.set_targets("all");
  const auto quantized = model::ModelSpec::build(make_spec({}).config, model::Finetuning::adapter, lora,
                                                 model::WeightStorage::in({ops::QuantFormat::int8}));
  OneLayer layer(device(), device().is_cpu() ? at::kDouble : at::kBFloat16, quantized);
  const at::Tensor first = layer.run(50);
  EXPECT_TRUE(at::equal(layer.run(50), first));
  layer.decode(0.02);
  EXPECT_FALSE(at::equal(layer.run(50), first)) << "other weights";
  EXPECT_EQ(layer.counts().moved, 1);
}

TEST(LayerGraphsCounts, SayWhetherItPays) {
  using Counts = LayerGraphs::Counts;
  const auto costs = [](const Counts& counts) { return counts.is_unprofitable(); };
  EXPECT_FALSE(costs({.uncaptured = 900, .captured = 900, .replayed = 900, .moved = 100})) << "a start";
  EXPECT_FALSE(costs({.uncaptured = 9000, .captured = 9000, .replayed = 90000, .moved = 9000}));
  EXPECT_TRUE(costs({.uncaptured = 9000, .captured = 9000, .replayed = 18000, .moved = 9000}));
  EXPECT_TRUE(costs({.uncaptured = 9000, .captured = 9000, .replayed = 18000, .evicted = 9000}));
}

TEST_P(LayerGraphsTest, OfScratchMemoryOnlyTheirOwnMatters) {
  OneLayer layer(device());
  for (int i = 0; i < 2; ++i) layer.run(50);
  layer.transformer().workspace().get("another", {1 << 20}, at::kByte);
  layer.run(50);
  EXPECT_EQ(layer.counts().moved, 0);
}

TEST_P(LayerGraphsTest, KeepSoManyShapesAndTheLastOnesUsed) {
  OneLayer layer(device());
  const auto tokens = [](std::size_t shape) { return 64 * static_cast<std::int64_t>(shape + 1); };
  layer.run(tokens(LayerGraphs::kShapes));  // the arena does not grow from here on
  for (std::size_t b = 0; b < LayerGraphs::kShapes; ++b) layer.run(tokens(b));
  const auto before = layer.counts();
  layer.run(tokens(0));
  EXPECT_EQ(layer.counts().captured, before.captured + 1) << "still known";
  layer.run(tokens(LayerGraphs::kShapes));
  EXPECT_EQ(layer.counts().uncaptured, before.uncaptured + 1) << "forgotten";
  layer.run(tokens(1));
  EXPECT_EQ(layer.counts().uncaptured, before.uncaptured + 2) << "forgotten for that one";
  EXPECT_EQ(layer.counts().evicted, 0) << "the discarded shapes had no graph";
  for (std::size_t b = 1; b <= LayerGraphs::kShapes; ++b) layer.run(tokens(b));
  EXPECT_EQ(layer.counts().evicted, 1) << "that of the first";
}

INSTANTIATE_TEST_SUITE_P(CpuAndGpu, LayerGraphsTest, ::testing::Bool());

}  // namespace
}  // namespace qft::parallel::testing
