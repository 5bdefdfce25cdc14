// The temporary tensors of operations in plain ATen calls, as the allocator counts them, beside what memory plans say.
#include "qft/ops/generic.h"

#include <functional>
#include <string>

#include "fixture.h"

namespace qft::sim {
namespace {

constexpr std::int64_t kTokens = 64, kHidden = 96, kIntermediate = 160, kRows = 16, kVocabulary = 512;

class Scratch : public Sim {
 protected:
  at::Tensor rows(std::int64_t columns, std::int64_t count = kTokens) const {
    return at::ones({count, columns}, on_device(type));
  }
  at::Tensor statistics(c10::IntArrayRef size) const { return at::ones(size, on_device(ops::generic::accumulate_dtype(type))); }
  /// Bytes that `work` takes beside what is there before it.
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
    const at::Tensor rstd = statistics({kTokens}), gweight = statistics({kHidden});
    expect_within("norm", taken([&] { ops::generic::rms_norm_backward(gy, x, weight, rstd, gy, gx, gweight); }),
                  {.tokens = kTokens, .hidden = kHidden});
    const at::Tensor gate_up = rows(2 * kIntermediate), gact = rows(kIntermediate), act = rows(kIntermediate);
    expect_within("swiglu", taken([&] { ops::generic::swiglu_backward(gate_up, gact, gate_up, act); }),
                  {.tokens = kTokens, .intermediate = kIntermediate});
    const at::Tensor logits = rows(kVocabulary, kRows), logprobs = statistics({kRows});
    const at::Tensor targets = at::zeros({kRows}, on_device(at::kInt));
    expect_within("cross-entropy", taken([&] { ops::generic::cross_entropy_rows(logits, targets, logprobs, logprobs); }),
                  {.logit_rows = kRows, .vocabulary = kVocabulary});
  }
}

}  // namespace
}  // namespace qft::sim
