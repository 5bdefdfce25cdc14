// Compares the gradients of a layer of every architecture with finite differences of its forward pass, in fp64.
#include "qft/model/config.h"
#include "qft/model/transformer.h"

#include <cmath>

#include "model/architecture.h"
#include "tiny_config.h"
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/normal.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

namespace qft::model {
namespace {

constexpr double kStep = 1e-5, kTolerance = 1e-7;

at::Tensor randn(at::IntArrayRef shape, std::uint64_t seed) {
  return at::normal(0.0, 0.5, shape, at::detail::createCPUGenerator(seed), at::kDouble);
}

/// Four layers, so that a hybrid has both kinds of layers; with all biases that the architecture may have.
ModelSpec spec_of(std::string_view type, bool lora) {
  auto config = base(type);
  config.update({{"num_hidden_layers", 4},
                 {"head_dim", 8},
                 {"linear_num_key_heads", 1},
                 {"linear_num_value_heads", 2},
                 {"linear_key_head_dim", 6},
                 {"linear_value_head_dim", 4}});
  const Architecture& row = architecture_of(std::string(type), "test");
  for (const Bias& bias : {row.qkv, row.o, row.mlp})
    if (bias.key != nullptr) config[bias.key] = true;
  LoraConfig adapter;
  if (lora) {
    adapter.rank = 2;
    adapter.alpha = 3;
    adapter.set_targets("all");
  }
  return ModelSpec::build(ModelConfig::parse(config.dump(), "test"), lora ? Finetuning::adapter : Finetuning::full, adapter);
}

/// The sum of gy * layer(x) over two sequences.
class LayerUnderTest {
 public:
  LayerUnderTest(const ModelSpec& spec, int layer, const std::vector<std::int32_t>& shared = {})
      : spec_(spec), layer_(layer), transformer_(spec, at::kDouble, at::kCPU), arena_(at::kCPU) {
    transformer_.ensure_positions(6);
    const std::vector<std::int32_t> tokens(11, 1), bounds = {0, 5, 11};
    in_ = MicroInput::build(tokens, bounds, {}, {}, at::kCPU, {}, shared);
    const UnitSpec& unit = spec.units[static_cast<std::size_t>(layer) + 1];
    flat = {randn({unit.frozen_numel}, 1), randn({unit.trainable_numel}, 2), {}};
    flat.grad = at::zeros_like(flat.trainable);
    x = randn({in_.num_tokens(), spec.config.hidden_size}, 3);
    gy = randn(x.sizes(), 4);
  }

  double value() {
    return run([](const auto&, const auto&) {});
  }
  /// Returns x's gradient; flat.grad receives the other gradients.
  at::Tensor gradients() {
    at::Tensor g = gy.clone();
    run([&](const LayerWeights& weights, const LayerSaved& saved) {
      transformer_.layer_backward(layer_, weights, in_, {}, saved, g, true);
    });
    return g;
  }

  UnitBuffers flat;
  at::Tensor x, gy;
  const ops::SharedRows& shared() const { return in_.sequences.shared; }

 private:
  template <class After>
  double run(const After& after) {
    const auto mark = arena_.mark();
    const LayerWeights weights = bind_layer(spec_, spec_.units[static_cast<std::size_t>(layer_) + 1], flat);
    const LayerSaved saved = transformer_.allocate_saved(layer_, weights, x, arena_);
    const at::Tensor y = at::empty_like(x);
    transformer_.layer_forward(layer_, weights, in_, {}, y, saved);
    after(weights, saved);
    arena_.release(mark);
    return (y * gy).sum().item<double>();
  }

  const ModelSpec& spec_;
  int layer_;
  Transformer transformer_;
  Arena arena_;
  MicroInput in_;
};

/// Checks the gradient along a random direction of `values`, a view.
void expect_gradient(LayerUnderTest& layer, const at::Tensor& values, const at::Tensor& gradient, const std::string& what) {
  const at::Tensor direction = randn(values.sizes(), 5), before = values.clone();
  values.add_(direction, kStep);
  const double above = layer.value();
  values.copy_(before).sub_(direction, kStep);
  const double difference = (above - layer.value()) / (2 * kStep);
  values.copy_(before);
  const at::Tensor terms = gradient * direction;
  const double scale = terms.norm().item<double>();
  EXPECT_GT(scale, 0) << what;
  EXPECT_NEAR(difference, terms.sum().item<double>(), kTolerance * (1 + scale)) << what;
}

TEST(Layer, GradientsOfEveryArchitectureAreThoseOfItsForward) {
  for (const std::string_view type : architectures())
    for (const bool lora : {false, true}) {
      const ModelSpec spec = spec_of(type, lora);
      for (const int index : {0, 3}) {
        LayerUnderTest layer(spec, index);
        const at::Tensor gx = layer.gradients();
        const std::string where = std::string(type) + (lora ? " LoRA, layer " : ", layer ") + std::to_string(index) + ": ";
        expect_gradient(layer, layer.x, gx, where + "input");
        for (const ParamSpec& p : spec.units[static_cast<std::size_t>(index) + 1].params)
          if (p.trainable)
            expect_gradient(layer, layer.flat.trainable.narrow(0, p.offset, p.numel),
                            layer.flat.grad.narrow(0, p.offset, p.numel), where + p.path);
      }
    }
}

/// Compares gradients in the hundreds, within 1e-12 of the largest.
void expect_close(const at::Tensor& a, const at::Tensor& b) {
  EXPECT_LE((a - b).abs().max().item<double>(), 1e-12 * b.abs().max().item<double>());
}

/// Compares two sequences that share their first three rows with the same sequences in separate rows.
TEST(Layer, OfSequencesThatShareRowsIsThatOfEach) {
  for (const std::string_view type : architectures())
    for (const bool lora : {false, true}) {
      const ModelSpec spec = spec_of(type, lora);
      for (const int index : {0, 3}) {
        SCOPED_TRACE(std::string(type) + (lora ? " LoRA, layer " : ", layer ") + std::to_string(index));
        LayerUnderTest shared(spec, index, {0, 3}), apart(spec, index);
        ASSERT_EQ(shared.x.size(0), 8);
        ops::expand_rows(shared.x, shared.shared(), apart.x);
        ops::expand_gradient(shared.gy, shared.shared(), apart.gy);
        const at::Tensor gx = shared.gradients(), sum = at::empty_like(gx);
        ops::sum_tokens(apart.gradients(), shared.shared(), sum);
        EXPECT_NEAR(shared.value(), apart.value(), 1e-12 * (1 + std::abs(apart.value())));
        expect_close(gx, sum);
        expect_close(shared.flat.grad, apart.flat.grad);
      }
    }
}

TEST(MicroInput, HasOneRowForWhatSequencesShare) {
  // [1 2 3 | 4 5] and [1 2 3 | 6 7 8], then a pair that shares nothing.
  const std::vector<std::int32_t> tokens = {1, 2, 3, 4, 5, 1, 2, 3, 6, 7, 8, 9, 10, 11, 12, 13};
  const std::vector<std::int32_t> bounds = {0, 5, 11, 13, 16}, labels = {3, 4, 8, 9, 10, 12, 15}, items = {0, 2, 4};
  const std::vector<std::int64_t> samples = {20, 21, 22, 23};
  const auto in = MicroInput::build(tokens, bounds, labels, samples, at::kCPU, items, std::vector<std::int32_t>{0, 2, 0, 0});
  const auto list = [](const at::Tensor& t) {
    const at::Tensor wide = t.to(at::kLong);
    return std::vector<std::int64_t>(wide.const_data_ptr<std::int64_t>(), wide.const_data_ptr<std::int64_t>() + wide.numel());
  };
  using Numbers = std::vector<std::int64_t>;
  EXPECT_EQ(in.num_tokens(), 14);
  EXPECT_EQ(in.sequences.num_tokens(), 16);
  EXPECT_EQ(list(in.tokens), (Numbers{1, 2, 3, 4, 5, 3, 6, 7, 8, 9, 10, 11, 12, 13}));
  EXPECT_EQ(list(in.positions), (Numbers{0, 1, 2, 3, 4, 2, 3, 4, 5, 0, 1, 0, 1, 2}));
  EXPECT_EQ(list(in.identity.sample_ids), (Numbers{20, 20, 20, 20, 20, 21, 21, 21, 21, 22, 22, 23, 23, 23}));
  EXPECT_EQ(list(in.labels.rows), (Numbers{2, 3, 5, 6, 7, 9, 12}));
  EXPECT_EQ(list(in.labels.targets), (Numbers{4, 5, 6, 7, 8, 10, 13}));
  EXPECT_EQ(in.label_offsets, (std::vector<std::int32_t>{0, 2, 5, 6, 7}));
  EXPECT_EQ(in.item_offsets, items);
}

}  // namespace
}  // namespace qft::model
