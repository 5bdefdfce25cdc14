#include "qft/ops/gated_delta.h"

#include <numeric>

#include "ops/gated_delta/gated_delta_paths.h"
#include "ops_support.h"
#include "support/gpu.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

namespace qft::ops {
namespace {

using namespace testing;

constexpr DeltaShape kShape{3, 6, 24, 40};
const std::vector<at::ScalarType> kDeltaDtypes = {at::kFloat, at::kBFloat16};

PackedSequences packed(const std::vector<std::int32_t>& bounds) {
  return PackedSequences::build(bounds, at::kCPU);
}

GatedDeltaTensors inputs(std::int64_t tokens, at::ScalarType dtype, double decay = 0.1, const DeltaShape& s = kShape) {
  const at::ScalarType wide = statistics_dtype(dtype);
  return {randn({tokens, s.key_heads, s.key_dim}, dtype, 1), randn({tokens, s.key_heads, s.key_dim}, dtype, 2),
          randn({tokens, s.value_heads, s.value_dim}, dtype, 3), randn({tokens, s.value_heads}, wide, 4, decay).abs().neg(),
          randn({tokens, s.value_heads}, wide, 5).sigmoid()};
}
GatedDeltaTensors rows_of(const GatedDeltaTensors& t, std::int64_t first, std::int64_t rows) {
  const auto part = [&](const at::Tensor& x) { return x.narrow(0, first, rows); };
  return {part(t.q), part(t.k), part(t.v), part(t.g), part(t.beta)};
}
std::vector<at::Tensor> list(const GatedDeltaTensors& t) {
  return {t.q, t.k, t.v, t.g, t.beta};
}

at::Tensor unit(const at::Tensor& x) {
  return x * at::rsqrt((x * x).sum(-1, true) + 1e-6);
}
/// The rule by its definition, token by token.
at::Tensor recurrent(const std::vector<at::Tensor>& in, const std::vector<std::int32_t>& bounds) {
  const std::int64_t group = in[2].size(1) / in[1].size(1);
  const at::Tensor q = (unit(in[0]) / std::sqrt(static_cast<double>(in[0].size(2)))).repeat_interleave(group, 1);
  const at::Tensor k = unit(in[1]).repeat_interleave(group, 1);
  // Not by indexing: the gradient of each index would be as large as the whole tensor.
  const std::vector<at::Tensor> qs = q.unbind(0), ks = k.unbind(0), vs = in[2].unbind(0), gs = in[3].unbind(0);
  const std::vector<at::Tensor> betas = in[4].unbind(0);
  std::vector<at::Tensor> out;
  for (std::size_t s = 0; s + 1 < bounds.size(); ++s) {
    at::Tensor state = at::zeros({in[2].size(1), k.size(2), in[2].size(2)}, k.options());
    for (auto t = static_cast<std::size_t>(bounds[s]); t < static_cast<std::size_t>(bounds[s + 1]); ++t) {
      state = state * at::exp(gs[t]).unsqueeze(-1).unsqueeze(-1);
      const at::Tensor kt = ks[t].unsqueeze(-1), predicted = (state * kt).sum(1);
      state = state + kt * ((vs[t] - predicted) * betas[t].unsqueeze(-1)).unsqueeze(1);
      out.push_back((state * qs[t].unsqueeze(-1)).sum(1));
    }
  }
  return at::stack(out);
}

struct Result {
  at::Tensor out, states;
};
Result forward(const GatedDeltaTensors& in, const std::vector<std::int32_t>& bounds) {
  const at::Tensor out = empty(in.v.sizes(), in.v.scalar_type());
  const PackedSequences sequences = packed(bounds);
  const at::Tensor states = empty({kept_delta_states(sequences), in.v.size(1), in.k.size(2), in.v.size(2)}, in.g.scalar_type());
  gated_delta_forward(in, sequences, out, states, workspace());
  return {out, states};
}
GatedDeltaTensors backward(const at::Tensor& gout, const GatedDeltaTensors& in, const at::Tensor& states,
                           const std::vector<std::int32_t>& bounds) {
  const auto like = [](const at::Tensor& x) { return empty(x.sizes(), x.scalar_type()); };
  const GatedDeltaTensors grads{like(in.q), like(in.k), like(in.v), like(in.g), like(in.beta)};
  gated_delta_backward(gout, in, states, packed(bounds), grads, workspace());
  return grads;
}

/// fp32 tolerance: sums have as many terms as a chunk has rows, inside triangular systems.
double rule_tolerance(at::ScalarType dtype) {
  return dtype == at::kFloat ? 2e-5 : tolerance(dtype);
}

void compare_with_autograd(const std::vector<std::int32_t>& bounds, at::ScalarType dtype, double decay,
                           const DeltaShape& shape = kShape) {
  const GatedDeltaTensors in = inputs(bounds.back(), dtype, decay, shape);
  const at::Tensor gout = randn(in.v.sizes(), dtype, 6);
  const Oracle oracle = differentiate([&](const auto& x) { return recurrent(x, bounds); }, list(in), gout);
  const Result result = forward(in, bounds);
  expect_close(result.out, oracle.value, rule_tolerance(dtype), "o");
  const std::vector<at::Tensor> grads = list(backward(gout, in, result.states, bounds));
  const char* names[] = {"gq", "gk", "gv", "gg", "gbeta"};
  for (std::size_t i = 0; i < grads.size(); ++i) expect_close(grads[i], oracle.grads[i], rule_tolerance(dtype), names[i]);
}

TEST(GatedDelta, AgreesWithAutogradOfTheRecurrence) {
  for (const at::ScalarType dtype : kDtypes) {
    for (const std::int32_t length : {1, 63, 64, 65, 130}) compare_with_autograd({0, length}, dtype, 0.1);
    compare_with_autograd({0, 1, 64, 64, 129, 194, 324}, dtype, 0.1);
    compare_with_autograd({0, 70, 140}, dtype, 30.0);
    if (dtype == at::kDouble) continue;
    for (const DeltaShape& shape : {DeltaShape{2, 2, 128, 128}, DeltaShape{1, 3, 5, 7}})
      compare_with_autograd({0, 70}, dtype, 0.1, shape);
  }
}

TEST(GatedDelta, LongSequencesGoThroughKeptStates) {
  const std::vector<std::int32_t> bounds = {0, 30, 30 + 1090, 30 + 1090 + 1024};
  EXPECT_EQ(kept_delta_states(packed(bounds)), 1);
  EXPECT_LE(1, max_kept_delta_states(bounds.back()));
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) compare_with_autograd(bounds, dtype, 0.01);
}

/// Runs the accelerators' batched path on the CPU, and compares with the plain ATen path, which another test compares with
/// autograd.
TEST(GatedDelta, BatchedChunksMatchSingleChunks) {
  for (const std::vector<std::int32_t>& bounds : std::vector<std::vector<std::int32_t>>{
           {0, 1}, {0, 64}, {0, 1, 64, 64, 129, 194, 324}, {0, 700, 1500}, {0, 30, 1120, 2144, 4300, 4301}})
    for (const DeltaShape& shape : {kShape, DeltaShape{2, 2, 8, 8}, DeltaShape{1, 3, 5, 7}}) {
      const GatedDeltaTensors in = inputs(bounds.back(), at::kDouble, 0.05, shape);
      const at::Tensor gout = randn(in.v.sizes(), at::kDouble, 6);
      const Result plain = forward(in, bounds);
      const PackedSequences sequences = packed(bounds);
      const at::Tensor out = zeros(in.v.sizes(), at::kDouble), states = zeros(plain.states.sizes(), at::kDouble);
      batched::delta_forward(in, sequences, out, states);
      expect_close(out, plain.out, 1e-13, "o");
      if (states.numel() > 0) expect_close(states, plain.states, 1e-13, "kept states");
      const at::Tensor unkept = zeros(in.v.sizes(), at::kDouble);
      batched::delta_forward(in, sequences, unkept, {});
      EXPECT_TRUE(unkept.equal(out)) << "no states are kept";
      const auto like = [](const at::Tensor& x) { return zeros(x.sizes(), x.scalar_type()); };
      const GatedDeltaTensors grads{like(in.q), like(in.k), like(in.v), like(in.g), like(in.beta)};
      batched::delta_backward(gout, in, plain.states, sequences, grads);
      const std::vector<at::Tensor> expected = list(backward(gout, in, plain.states, bounds)), got = list(grads);
      for (std::size_t i = 0; i < got.size(); ++i) expect_close(got[i], expected[i], 1e-12, "a gradient");
    }
}

TEST(GatedDeltaOnGpu, MatchesPlainCalls) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  const c10::Device gpu(at::kCUDA, 0);
  const std::vector<std::int32_t> bounds = {0, 30, 1120, 2144, 2145};
  const DeltaShape shape{2, 4, 32, 64};
  const auto like = [&](const at::Tensor& x) { return zeros(x.sizes(), x.scalar_type()).to(gpu); };
  for (const at::ScalarType dtype : kDtypes) {
    const GatedDeltaTensors in = inputs(bounds.back(), dtype, 0.05, shape);
    const at::Tensor gout = randn(in.v.sizes(), dtype, 6);
    std::vector<at::Tensor> exact;
    for (const at::Tensor& t : list(in)) exact.push_back(t.to(at::kDouble));
    const GatedDeltaTensors wide{exact[0], exact[1], exact[2], exact[3], exact[4]};
    const Result plain = forward(wide, bounds);
    const std::vector<at::Tensor> expected = list(backward(gout.to(at::kDouble), wide, plain.states, bounds));
    const GatedDeltaTensors here{in.q.to(gpu), in.k.to(gpu), in.v.to(gpu), in.g.to(gpu), in.beta.to(gpu)};
    const PackedSequences sequences = PackedSequences::build(bounds, gpu);
    const at::Tensor out = like(in.v), states = zeros(plain.states.sizes(), in.g.scalar_type()).to(gpu);
    Workspace own(gpu);
    gated_delta_forward(here, sequences, out, states, own);
    expect_close(out.cpu(), plain.out, rule_tolerance(dtype), "o");
    const GatedDeltaTensors grads{like(in.q), like(in.k), like(in.v), like(in.g), like(in.beta)};
    gated_delta_backward(gout.to(gpu), here, states, sequences, grads, own);
    const std::vector<at::Tensor> got = list(grads);
    for (std::size_t i = 0; i < got.size(); ++i) expect_close(got[i].cpu(), expected[i], rule_tolerance(dtype), "a gradient");
  }
}

TEST(GatedDelta, PackedEqualsAlone) {
  const std::vector<std::int32_t> bounds = {0, 1, 64, 64, 129, 194, 324};
  for (const at::ScalarType dtype : kDeltaDtypes) {
    const GatedDeltaTensors in = inputs(bounds.back(), dtype);
    const at::Tensor gout = randn(in.v.sizes(), dtype, 6);
    const Result together = forward(in, bounds);
    const std::vector<at::Tensor> grads = list(backward(gout, in, together.states, bounds));
    for (std::size_t s = 0; s + 1 < bounds.size(); ++s) {
      const std::int32_t first = bounds[s], rows = bounds[s + 1] - first;
      const GatedDeltaTensors own = rows_of(in, first, rows);
      const Result alone = forward(own, {0, rows});
      EXPECT_TRUE(alone.out.equal(together.out.narrow(0, first, rows))) << "sequence " << s;
      const std::vector<at::Tensor> own_grads = list(backward(gout.narrow(0, first, rows), own, alone.states, {0, rows}));
      for (std::size_t i = 0; i < grads.size(); ++i)
        EXPECT_TRUE(own_grads[i].equal(grads[i].narrow(0, first, rows))) << "sequence " << s << ", gradient " << i;
    }
    const Result leaking = forward(in, {0, 1, 64, 129, 324});
    EXPECT_TRUE(leaking.out.narrow(0, 0, 129).equal(together.out.narrow(0, 0, 129)));
    EXPECT_FALSE(leaking.out.narrow(0, 194, 130).equal(together.out.narrow(0, 194, 130)))
        << "a wrong boundary must change the result";
  }
}

GatedDeltaState new_state(at::ScalarType dtype, const DeltaShape& shape = kShape) {
  return GatedDeltaState::make(shape, statistics_dtype(dtype), at::kCPU);
}

TEST(GatedDelta, DecodingAgreesWithTheForward) {
  for (const at::ScalarType dtype : kDtypes) {
    const GatedDeltaTensors in = inputs(150, dtype);
    const at::Tensor whole = forward(in, {0, 150}).out, out = empty(whole.sizes(), dtype);
    GatedDeltaState state = new_state(dtype);
    EXPECT_EQ(
        GatedDeltaState::bytes(kShape, statistics_dtype(dtype)),
        static_cast<std::int64_t>(state.state.nbytes() + state.keys.nbytes() + state.updates.nbytes() + state.decay.nbytes()));
    std::int64_t at = 0;
    for (const std::int64_t n : {1, 30, 40, 57, 1, 21}) {
      const std::vector<RecurrentSequence> one = {{n, &state}};
      gated_delta_decode(rows_of(in, at, n), one, out.narrow(0, at, n), workspace());
      at += n;
    }
    expect_close(out, whole, rule_tolerance(dtype), "decoded");
  }
}

/// A prompt in one call, then token by token, next to a sequence at another position.
TEST(GatedDelta, DecodedRowsHaveTheBitsOfTheForward) {
  constexpr std::int64_t kTokens = 80, kPrompt = 50, kAhead = 9;
  for (const DeltaShape& shape : {kShape, DeltaShape{2, 2, 128, 128}, DeltaShape{1, 3, 5, 7}})
    for (const at::ScalarType dtype : kDeltaDtypes) {
      const GatedDeltaTensors in = inputs(kTokens, dtype, 0.1, shape);
      const at::Tensor whole = forward(in, {0, kTokens}).out;
      GatedDeltaState first = new_state(dtype, shape), second = new_state(dtype, shape);
      const auto step = [&](std::int64_t at, std::int64_t n, std::int64_t other, std::int64_t others) {
        const auto both = [&](const at::Tensor& x) { return at::cat({x.narrow(0, at, n), x.narrow(0, other, others)}); };
        const at::Tensor out = empty({n + others, shape.value_heads, shape.value_dim}, dtype);
        const std::vector<RecurrentSequence> sequences = {{n, &first}, {others, &second}};
        gated_delta_decode({both(in.q), both(in.k), both(in.v), both(in.g), both(in.beta)}, sequences, out, workspace());
        EXPECT_TRUE(out.equal(both(whole))) << "tokens from " << at << " and " << other << ", heads of " << shape.key_dim;
      };
      step(0, kPrompt, 0, kPrompt + kAhead);
      for (std::int64_t t = kPrompt; t + kAhead < kTokens; ++t) step(t, 1, t + kAhead, 1);
    }
}

TEST(GatedDelta, KernelsTakeTheMemoryThatIsPlanned) {
  const GatedDeltaTensors in = inputs(200, at::kFloat);
  for (const bool both : {false, true}) {
    Workspace own(c10::kCPU);
    const PackedSequences sequences = packed({0, 200});
    const at::Tensor out = empty(in.v.sizes(), at::kFloat);
    gated_delta_forward(in, sequences, out, {}, own);
    const auto like = [](const at::Tensor& x) { return empty(x.sizes(), x.scalar_type()); };
    const GatedDeltaTensors grads{like(in.q), like(in.k), like(in.v), like(in.g), like(in.beta)};
    if (both) gated_delta_backward(out, in, {}, sequences, grads, own);
    EXPECT_EQ(own.bytes_in_use(),
              gated_delta_scratch_bytes(kShape, {.tokens = 200, .longest = 200}, at::kFloat, DeltaPath::cpu, both));
  }
}

TEST(GatedDelta, ZeroRowsAndLargeDecaysStayFinite) {
  for (const at::ScalarType dtype : kDtypes) {
    const GatedDeltaTensors in = inputs(130, dtype, 2000.0);
    for (const at::Tensor& t : {in.q, in.k, in.v}) t.narrow(0, 60, 10).zero_();
    const Result result = forward(in, {0, 130});
    EXPECT_TRUE(result.out.isfinite().all().item<bool>());
    for (const at::Tensor& grad : list(backward(randn(in.v.sizes(), dtype, 6), in, result.states, {0, 130})))
      EXPECT_TRUE(grad.isfinite().all().item<bool>());
  }
}

}  // namespace
}  // namespace qft::ops
