// Compares the scratch memory of operations in plain ATen calls, as counted by the allocator, with memory plans.
#include "qft/ops/activation.h"
#include "qft/ops/delta_gates.h"
#include "qft/ops/gated_delta.h"
#include "qft/ops/generic.h"
#include "qft/ops/norm.h"
#include "qft/ops/short_convolution.h"

#include <functional>
#include <string>
#include <vector>

#include "fixture.h"

namespace qft::sim {
namespace {

constexpr std::int64_t kScratchTokens = 64, kHidden = 96, kIntermediate = 160, kRows = 16, kVocabulary = 512;

class Scratch : public Sim {
 protected:
  at::Tensor rows(std::int64_t columns, std::int64_t count = kScratchTokens) const {
    return at::ones({count, columns}, on_device(type));
  }
  at::Tensor statistics(c10::IntArrayRef size) const { return at::ones(size, on_device(ops::generic::accumulate_dtype(type))); }
  /// Returns the bytes that `work` allocates in addition to the existing memory.
  static std::int64_t taken(const std::function<void()>& work) {
    guard().synchronizeDevice(0);
    const auto before = allocator().getDeviceStats(0).allocated_bytes[0].current;
    allocator().resetPeakStats(0);
    work();
    guard().synchronizeDevice(0);
    return peak_use(0) - before;
  }
  void expect_within(const std::string& what, std::int64_t bytes, const ops::generic::Sizes& sizes) const {
    const std::int64_t planned = ops::generic::scratch_bytes(sizes, type);
    EXPECT_LE(bytes, planned + planned / 10) << what << " " << type;
    EXPECT_GE(bytes, planned * 7 / 10) << what << " " << type;
  }

  c10::ScalarType type = at::kFloat;
};

TEST_F(Scratch, OfPlainOperationsIsWhatIsPlanned) {
  for (const auto each : {at::kBFloat16, at::kHalf, at::kFloat, at::kDouble}) {
    type = each;
    const at::Tensor x = rows(kHidden), gy = rows(kHidden), weight = at::ones({kHidden}, on_device(type)), gx = rows(kHidden);
    const at::Tensor rstd = statistics({kScratchTokens}), gweight = statistics({kHidden});
    expect_within("norm", taken([&] {
                    ops::generic::rms_norm_backward(
                        {.gy = gy, .x = x, .weight = weight, .rstd = rstd, .residual_grad = gy, .gx = gx, .gweight = gweight});
                  }),
                  {.tokens = kScratchTokens, .hidden = kHidden});
    const at::Tensor gate_up = rows(2 * kIntermediate), gact = rows(kIntermediate), act = rows(kIntermediate);
    expect_within("swiglu", taken([&] { ops::generic::swiglu_backward(gate_up, gact, gate_up, act); }),
                  {.tokens = kScratchTokens, .intermediate = kIntermediate});
    const at::Tensor logits = rows(kVocabulary, kRows), logprobs = statistics({kRows});
    const at::Tensor targets = at::zeros({kRows}, on_device(at::kInt));
    expect_within("cross-entropy", taken([&] { ops::generic::cross_entropy_rows(logits, targets, logprobs, logprobs); }),
                  {.logit_rows = kRows, .vocabulary = kVocabulary});
  }
}

/// The delta net: the rule over many chunks at once, and its convolution.
TEST_F(Scratch, OfTheDeltaNetIsWhatIsPlanned) {
  const auto within = [&](const char* what, std::int64_t bytes, std::int64_t planned) {
    EXPECT_LE(bytes, planned + planned / 10) << what << " " << type;
    EXPECT_GE(bytes, planned * 7 / 10) << what << " " << type;
  };
  constexpr ops::DeltaShape kShapes[] = {{4, 4, 32, 32}, {2, 4, 32, 64}};
  for (const auto each : {at::kBFloat16, at::kFloat})
    for (const ops::DeltaShape& s : kShapes)
      for (const std::vector<std::int32_t>& bounds : std::vector<std::vector<std::int32_t>>{{0, 1024}, {0, 100, 300, 512}}) {
        type = each;
        const std::int64_t tokens = bounds.back(), channels = 2 * s.key_heads * s.key_dim + s.value_heads * s.value_dim;
        const ops::PackedSequences sequences = ops::PackedSequences::build(bounds, device());
        const BatchShape sizes{.tokens = tokens, .sequences = std::ssize(bounds) - 1};
        const auto heads = [&](std::int64_t count, std::int64_t dim) { return at::ones({tokens, count, dim}, on_device(type)); };
        const auto operands = [&] {
          return ops::GatedDeltaTensors{heads(s.key_heads, s.key_dim), heads(s.key_heads, s.key_dim),
                                        heads(s.value_heads, s.value_dim), statistics({tokens, s.value_heads}).neg(),
                                        statistics({tokens, s.value_heads})};
        };
        const ops::GatedDeltaTensors in = operands(), grads = operands();
        const at::Tensor out = heads(s.value_heads, s.value_dim);
        ops::Workspace workspace(device());
        const auto planned = [&](bool backward) {
          return ops::gated_delta_scratch_bytes(s, sizes, type, ops::DeltaPath::plain, backward);
        };
        within("rule", taken([&] { ops::gated_delta_forward(in, sequences, out, {}, workspace); }), planned(false));
        within("its gradient", taken([&] { ops::gated_delta_backward(out, in, {}, sequences, grads, workspace); }),
               planned(true));
        const at::Tensor x = rows(channels, tokens), y = rows(channels, tokens),
                         weight = at::ones({channels, 4}, on_device(type));
        const auto of_filter = [&](bool backward) {
          return ops::short_convolution_scratch_bytes(tokens, sizes.sequences, channels, type, backward);
        };
        within("filter", taken([&] { ops::short_convolution_forward(x, weight, sequences, y, workspace); }), of_filter(false));
        within("its gradient", taken([&] { ops::short_convolution_backward(y, x, weight, sequences, y, {}, workspace); }),
               of_filter(true));
        const at::Tensor per_head = statistics({tokens, s.value_heads}), norm = at::ones({s.value_dim}, on_device(type));
        const auto of_norm = [&](bool backward) {
          return ops::gated_norm_scratch_bytes(tokens, s.value_heads * s.value_dim, type, /*on_cpu=*/false, backward);
        };
        const at::Tensor norm_grad = statistics({s.value_dim});
        within("norm", taken([&] { ops::gated_norm_forward(in.v, out, norm, 1e-6, grads.v, per_head); }), of_norm(false));
        within("its gradient", taken([&] {
                 ops::gated_norm_backward({.gy = out,
                                           .x = in.v,
                                           .z = in.v,
                                           .weight = norm,
                                           .rstd = per_head,
                                           .gx = out,
                                           .gz = grads.v,
                                           .gweight = norm_grad},
                                          workspace);
               }),
               of_norm(true));
        const ops::DeltaGateInputs gates{rows(s.value_heads, tokens), rows(s.value_heads, tokens), rows(s.value_heads, 1)[0],
                                         rows(s.value_heads, 1)[0]};
        const auto of_gates = [&](bool backward) {
          return ops::delta_gates_scratch_bytes(tokens, s.value_heads, type, backward);
        };
        within("gates", taken([&] { ops::delta_gates_forward(gates, per_head, grads.beta); }), of_gates(false));
        within("their gradient", taken([&] { ops::delta_gates_backward(per_head, grads.beta, gates, gates); }), of_gates(true));
      }
}

/// The norm over more rows than plain calls process at once, and attention's gates.
TEST_F(Scratch, OfGatesIsWhatIsPlanned) {
  type = at::kBFloat16;
  constexpr std::int64_t kHeads = 16, kWidth = 128, kTokens = 2304;  // 2,048 at once
  const at::Tensor x = at::ones({kTokens, kHeads, kWidth}, on_device(type)), weight = at::ones({kWidth}, on_device(type));
  const at::Tensor rstd = statistics({kTokens, kHeads}), gweight = statistics({kWidth});
  ops::Workspace workspace(device());
  const std::int64_t norm = taken([&] {
    ops::gated_norm_backward({.gy = x, .x = x, .z = x, .weight = weight, .rstd = rstd, .gx = x, .gz = x, .gweight = gweight},
                             workspace);
  });
  const std::int64_t planned = ops::gated_norm_scratch_bytes(kTokens, kHeads * kWidth, type, /*on_cpu=*/false, true);
  EXPECT_LE(norm, planned + planned / 20);
  EXPECT_GE(norm, planned * 9 / 10);
  EXPECT_EQ(planned, ops::gated_norm_scratch_bytes(4 * kTokens, kHeads * kWidth, type, /*on_cpu=*/false, true));
  const at::Tensor all = x.flatten(1);
  for (const bool backward : {false, true}) {
    const std::int64_t gates =
        taken([&] { backward ? ops::head_gate_backward(all, all, x, x) : ops::head_gate_forward(all, x, all); });
    EXPECT_NEAR(static_cast<double>(gates),
                static_cast<double>(ops::head_gate_scratch_bytes(kTokens, kHeads * kWidth, type, backward)), 1e6);
  }
}

}  // namespace
}  // namespace qft::sim
