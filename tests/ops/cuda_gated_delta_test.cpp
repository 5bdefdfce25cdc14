// Compares the CUDA kernels of the gated delta rule with plain ATen calls in fp64: with the CUDA stand-in on any machine, and
// through the operation on a GPU.
// clang-format off: must precede every kernel, because it provides their CUDA
#include "support/simt.h"
// clang-format on

#include "qft/ops/gated_delta.h"

#include <limits>

#include "kernels_support.h"
#include "ops/gated_delta/gated_delta_cuda.cuh"
#include "ops/gated_delta/gated_delta_tensor_args_cuda.h"
#include "ops_support.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

namespace qft::ops {
namespace {

using namespace testing;

using Bounds = std::vector<std::int32_t>;

std::vector<at::Tensor> tensors_of(const GatedDeltaTensors& t) {
  return {t.q, t.k, t.v, t.g, t.beta};
}
template <class F>
GatedDeltaTensors each(const GatedDeltaTensors& t, const F& f) {
  return {f(t.q), f(t.k), f(t.v), f(t.g), f(t.beta)};
}

/// Inputs as views of fused rows [T, q | k | v], as in a layer, with `tokens` tokens.
GatedDeltaTensors inputs(std::int64_t tokens, at::ScalarType dtype, const DeltaShape& s, c10::Device device, double decay = 0.1) {
  const std::int64_t keys = s.key_heads * s.key_dim;
  const at::Tensor rows = randn({tokens, 2 * keys + s.value_heads * s.value_dim}, dtype, 1).to(device);
  return {heads_view(rows, 0, s.key_heads, s.key_dim), heads_view(rows.narrow(1, keys, keys), 0, s.key_heads, s.key_dim),
          heads_view(rows.narrow(1, 2 * keys, s.value_heads * s.value_dim), 0, s.value_heads, s.value_dim),
          randn({tokens, s.value_heads}, at::kFloat, 4, decay).abs().neg().to(device),
          randn({tokens, s.value_heads}, at::kFloat, 5).sigmoid().to(device)};
}

/// Outputs of a call: o, kept states, gradients.
struct Results {
  at::Tensor out, states;
  GatedDeltaTensors grads;
  std::vector<at::Tensor> all() const {
    std::vector<at::Tensor> tensors = {out, states};
    for (const at::Tensor& t : tensors_of(grads)) tensors.push_back(t);
    return tensors;
  }
};
constexpr const char* kNames[] = {"o", "kept states", "gq", "gk", "gv", "gg", "gbeta"};

class CudaGatedDelta : public KernelTest {
 protected:
  /// Fills a tensor with NaN, to detect reads of uninitialised memory.
  at::Tensor unwritten(const at::Tensor& like) const {
    return at::full(like.sizes(), std::numeric_limits<double>::quiet_NaN(), like.options()).to(device());
  }

  void forward(const GatedDeltaTensors& in, const PackedSequences& sequences, const Results& to) {
    if (on_gpu()) return gated_delta_forward(in, sequences, to.out, to.states, workspace_);
    const DeltaWork work = work_for(in, sequences, false);
    with_type(in.v.scalar_type(), [&]<class T>() {
      cuda::launch_delta_forward(delta_forward_args<T>(in, work, to.out, to.states), work.waves, simt::Launch());
    });
  }
  void backward(const at::Tensor& gout, const GatedDeltaTensors& in, const PackedSequences& sequences, const Results& to) {
    if (on_gpu()) return gated_delta_backward(gout, in, to.states, sequences, to.grads, workspace_);
    const DeltaWork work = work_for(in, sequences, true);
    with_type(in.v.scalar_type(), [&]<class T>() {
      cuda::launch_delta_backward(delta_backward_args<T>(gout, in, to.states, work, to.grads), work.waves, simt::Launch());
    });
  }

  Results computed(const GatedDeltaTensors& in, const at::Tensor& gout, const Bounds& bounds, const Bounds& shared = {}) {
    const PackedSequences sequences = PackedSequences::build(bounds, device(), shared);
    const std::int64_t dk = in.k.size(2), dv = in.v.size(2), heads = in.v.size(1);
    const Results r{unwritten(gout), unwritten(at::empty({kept_delta_states(sequences), heads, dk, dv}, in.g.options())),
                    each(in, [&](const at::Tensor& t) { return unwritten(t); })};
    forward(in, sequences, r);
    backward(gout.to(device()), in, sequences, r);
    return r;
  }

  /// shared: the argument of PackedSequences::build().
  void compare(const DeltaShape& shape, const Bounds& bounds, at::ScalarType dtype, double decay = 0.1,
               const Bounds& shared = {}) {
    const std::int64_t rows = PackedSequences::build(bounds, at::kCPU, shared).num_rows();
    const auto in = [&](c10::Device where) { return inputs(rows, dtype, shape, where, decay); };
    const at::Tensor gout = randn({rows, shape.value_heads, shape.value_dim}, dtype, 6);
    const std::vector<at::Tensor> got = computed(in(device()), gout, bounds, shared).all(),
                                  expected = exact(in(at::kCPU), gout, bounds, shared).all();
    const double limit = dtype == at::kFloat ? 2e-5 : tolerance(dtype);
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (expected[i].numel() == 0) continue;
      SCOPED_TRACE(::testing::Message() << c10::toString(dtype) << " Dk " << shape.key_dim << " Dv " << shape.value_dim
                                        << " tokens " << bounds.back());
      expect_close(got[i].cpu(), expected[i], limit, kNames[i]);
    }
  }

 private:
  /// Fills the scratch memory with NaN first.
  static DeltaWork work_for(const GatedDeltaTensors& in, const PackedSequences& sequences, bool backward) {
    DeltaWork work(sequences, {in.k.size(1), in.v.size(1), in.k.size(2), in.v.size(2)}, c10::kCPU, backward);
    if (work.scratch.defined()) work.scratch.fill_(std::numeric_limits<double>::quiet_NaN());
    return work;
  }
  /// Computes the reference: the same inputs in fp64 with plain ATen calls.
  static Results exact(const GatedDeltaTensors& in, const at::Tensor& gout, const Bounds& bounds, const Bounds& shared) {
    const GatedDeltaTensors wide = each(in, [](const at::Tensor& t) { return t.to(at::kDouble).contiguous(); });
    const PackedSequences sequences = PackedSequences::build(bounds, at::kCPU, shared);
    const auto like = [](const at::Tensor& t) { return empty(t.sizes(), at::kDouble); };
    const Results r{like(wide.v), empty({kept_delta_states(sequences), in.v.size(1), in.k.size(2), in.v.size(2)}, at::kDouble),
                    each(wide, like)};
    gated_delta_forward(wide, sequences, r.out, r.states, workspace());
    gated_delta_backward(gout.to(at::kDouble), wide, r.states, sequences, r.grads, workspace());
    return r;
  }
};

TEST_P(CudaGatedDelta, AgreesWithPlainCallsInFp64) {
  for (const at::ScalarType dtype : kKernelDtypes) {
    compare({1, 2, 12, 20}, {0, 1, 64, 64, 129}, dtype);
    compare({1, 3, 5, 7}, {0, 70, 75}, dtype);
  }
  for (const std::int32_t length : {1, 64, 65}) compare({2, 2, 8, 8}, {0, length}, at::kFloat);
  compare({1, 1, 5, 7}, {0, 70, 140}, at::kFloat, 30.0);
}

TEST_P(CudaGatedDelta, WideHeadsTakeSeveralSquares) {
  compare({1, 1, 128, 128}, {0, 70}, at::kBFloat16);
  compare({1, 1, 256, 68}, {0, 66}, at::kFloat);
  compare({1, 1, 66, 150}, {0, 66}, at::kHalf);
  if (!on_gpu()) return;
  for (const at::ScalarType dtype : kKernelDtypes) {
    compare({2, 4, 128, 128}, {0, 30, 1120, 2144, 2145}, dtype, 0.05);
    compare({16, 32, 128, 128}, {0, 500, 700}, dtype, 0.05);
    compare({1, 1, 256, 256}, {0, 200}, dtype);
  }
}

/// Sequences with several segments, and several waves.
TEST_P(CudaGatedDelta, StatesGoFromSegmentToSegmentAndFromWaveToWave) {
  const Bounds bounds = {0, 900, 2100, 2130};
  EXPECT_EQ(DeltaWork(PackedSequences::build(bounds, at::kCPU), {1, 1, 4, 6}, at::kCPU, false).waves.size(), 2U);
  compare({1, 1, 4, 6}, bounds, at::kFloat, 0.02);
  if (!on_gpu()) return;
  for (const at::ScalarType dtype : kKernelDtypes) compare({2, 6, 13, 21}, {0, 30, 1120, 2144, 4400, 8700, 8701}, dtype, 0.05);
}

TEST_P(CudaGatedDelta, SharedRowsAreLaidOutBeforeIt) {
  if (!on_gpu()) GTEST_SKIP() << "the operation expands the rows itself";
  compare({1, 2, 12, 20}, {0, 100, 230}, at::kFloat, 0.1, {0, 70});
  compare({1, 2, 12, 20}, {0, 1200, 2500}, at::kBFloat16, 0.05, {0, 1100});
}

TEST_P(CudaGatedDelta, RepeatsItself) {
  const GatedDeltaTensors in = inputs(130, at::kBFloat16, {1, 2, 12, 20}, device());
  const at::Tensor gout = randn(in.v.sizes(), at::kBFloat16, 6);
  const std::vector<at::Tensor> first = computed(in, gout, {0, 130}).all(), second = computed(in, gout, {0, 130}).all();
  for (std::size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(first[i].equal(second[i])) << kNames[i];
  if (!on_gpu()) return;
  const DeltaShape shape{4, 8, 128, 128};
  const Bounds bounds{0, 30, 1500, 4000};
  const GatedDeltaTensors wide = inputs(bounds.back(), at::kBFloat16, shape, device());
  const at::Tensor gwide = randn(wide.v.sizes(), at::kBFloat16, 6);
  const std::vector<at::Tensor> one = computed(wide, gwide, bounds).all(), two = computed(wide, gwide, bounds).all();
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(one[i].equal(two[i])) << kNames[i];
}

TEST_P(CudaGatedDelta, ZeroRowsAndLargeDecaysStayFinite) {
  const GatedDeltaTensors in = inputs(130, at::kFloat, {1, 2, 12, 20}, device(), 2000.0);
  for (const at::Tensor& t : {in.q, in.k, in.v}) t.narrow(0, 60, 10).zero_();
  for (const at::Tensor& t : computed(in, randn(in.v.sizes(), at::kFloat, 6), {0, 130}).all())
    EXPECT_TRUE(t.isfinite().all().item<bool>());
}

TEST_P(CudaGatedDelta, NoTokensAreNoWork) {
  const GatedDeltaTensors in = inputs(0, at::kFloat, {1, 2, 12, 20}, device());
  EXPECT_EQ(computed(in, empty({0, 2, 20}, at::kFloat), {0, 0}).out.numel(), 0);
}

INSTANTIATE_TEST_SUITE_P(Where, CudaGatedDelta, ::testing::Bool(), name_of_place);

TEST(DeltaWork, TakesTheMemoryThatIsPlanned) {
  constexpr DeltaShape kShape{2, 4, 32, 64};
  for (const bool backward : {false, true})
    for (const Bounds& bounds : std::vector<Bounds>{{0, 100}, {0, 1024}, {0, 2048}, {0, 4096}, {0, 500, 1000, 1500, 2000}}) {
      const DeltaWork work(PackedSequences::build(bounds, at::kCPU), kShape, at::kCPU, backward);
      const auto taken = static_cast<std::int64_t>(work.scratch.nbytes());
      const std::int64_t planned = gated_delta_scratch_bytes(
          kShape, {.tokens = bounds.back(), .sequences = std::ssize(bounds) - 1}, at::kBFloat16, DeltaPath::device, backward);
      EXPECT_LE(taken, planned);
      EXPECT_GE(static_cast<double>(taken), 0.9 * static_cast<double>(planned)) << bounds.back();
    }
}

TEST(DeltaWork, DividesSequencesBySegments) {
  const DeltaWork work(PackedSequences::build(Bounds{0, 70, 70, 2200}, at::kCPU), {1, 1, 4, 4}, at::kCPU, false);
  ASSERT_EQ(work.waves.size(), 2U);
  const auto* table = work.table.const_data_ptr<std::int32_t>();
  const auto* chunks = reinterpret_cast<const DeltaChunk*>(table);
  EXPECT_EQ(chunks[1].token, 64);
  EXPECT_EQ(chunks[1].rows, 6);
  const auto* chains = reinterpret_cast<const DeltaChain*>(table + work.chains_at);
  EXPECT_EQ(work.waves[0].chains, 2);
  EXPECT_EQ(work.waves[0].segments, 2);
  EXPECT_EQ(work.waves[1].first_chunk, 18);
  EXPECT_EQ(work.waves[1].chunks, 18);
  EXPECT_EQ(chains[1].first, 2);
  EXPECT_EQ(chains[1].count, 16);
  EXPECT_EQ(chains[1].before, 0);
  EXPECT_EQ(chains[1].after, 1);
  EXPECT_EQ(chains[2].before, 1);
  EXPECT_EQ(chunks[18].kept, 0);
  EXPECT_EQ(chunks[34].kept, 1);
  EXPECT_EQ(chunks[19].kept, -1);
}

}  // namespace
}  // namespace qft::ops
