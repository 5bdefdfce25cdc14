// Checks attention over packed sequences with each of the device's kernels, against explicit matrices in fp64 on the CPU.
#include "qft/ops/attention.h"

#include <cmath>

#include "runner.h"
#include "values.h"
#include <ATen/TensorOperators.h>

namespace qft::selftest {
namespace {

using Kernel = ops::AttentionKernel;

constexpr const char* kAttentionReport =
    "train with 'bf16: false', which uses another kernel, or on the CPU; update driver and LibTorch; report this line with the "
    "output of qft --version";
constexpr Subject kForward{"attention", "forward", "tokens attend to the wrong tokens: losses and answers are wrong",
                           kAttentionReport};
constexpr Subject kBackward{"attention", "backward",
                            "gradients of all layers below are wrong: the loss falls slowly or not at all", kAttentionReport};

constexpr std::int64_t kHeads = 6, kKvHeads = 2;  // three query heads share a key head

struct Side {
  at::Tensor out, lse, grads;
};

Side compute(const Values& values, const at::Tensor& qkv, const at::Tensor& gout, std::int64_t head_dim, std::int64_t window,
             Kernel kernel, bool backward) {
  const std::vector<std::int32_t> boundaries = {0, 1, 71, 104, 233};  // uneven lengths, none a multiple of a tile
  const auto packed = ops::PackedSequences::build(boundaries, values.device());
  const ops::AttentionOptions options{1.0 / std::sqrt(static_cast<double>(head_dim)), window};
  const ops::QkvViews in = ops::split_qkv(qkv, kHeads, kKvHeads, head_dim);
  ops::Workspace workspace(values.device());
  Side s{values.result_buffer({packed.num_tokens(), kHeads * head_dim}),
         values.result_buffer({kHeads, packed.num_tokens()}, values.statistics()),
         {}};
  ops::attention_forward(in, packed, options, s.out, s.lse, workspace, kernel);
  if (!backward) return s;
  s.grads = values.result_buffer(qkv.sizes());
  ops::attention_backward(
      {.gout = gout, .in = in, .out = s.out, .lse = s.lse, .grads = ops::split_qkv(s.grads, kHeads, kKvHeads, head_dim)}, packed,
      options, workspace, kernel);
  return s;
}

void check_one(Runner& runner, at::ScalarType type, Kernel kernel, std::string_view name, std::int64_t head_dim,
               std::int64_t window) {
  constexpr std::int64_t tokens = 233;
  const std::string setting =
      fmt::format("{}, {}, heads of {}{}", name_of(type), name, head_dim, window > 0 ? fmt::format(", window {}", window) : "");
  const auto compare = [&](bool backward, const std::function<void(Outcome&, const Side&, const Side&)>& judge) {
    runner.check(backward ? kBackward : kForward, setting, [&](Outcome& out) {
      Values values(runner.device(), type);
      const auto qkv = values.normal({tokens, (kHeads + 2 * kKvHeads) * head_dim}, 1.5),
                 gout = values.normal({tokens, kHeads * head_dim});
      judge(out, compute(values, qkv.here, gout.here, head_dim, window, kernel, backward),
            compute(Values(c10::kCPU, at::kDouble), qkv.exact, gout.exact, head_dim, window, Kernel::reference, backward));
    });
  };
  const double limit = limits_of(type).product;
  compare(false, [&](Outcome& out, const Side& ours, const Side& want) {
    out.compare("the result", ours.out, want.out, limit);
    out.compare("the softmax's denominator", ours.lse, want.lse, limit);
  });
  compare(true, [&](Outcome& out, const Side& ours, const Side& want) {
    const auto got = ops::split_qkv(ours.grads, kHeads, kKvHeads, head_dim),
               exact = ops::split_qkv(want.grads, kHeads, kKvHeads, head_dim);
    out.compare("q's gradient", got.q, exact.q, limit);
    out.compare("k's gradient", got.k, exact.k, limit);
    out.compare("v's gradient", got.v, exact.v, limit);
  });
}

/// Returns the device's kernels for a type. Explicit matrices on the CPU in fp64 are the oracle itself.
std::vector<std::pair<Kernel, std::string_view>> kernels_for(Runner& runner, at::ScalarType type) {
  const at::Tensor q = Values(runner.device(), type).result_buffer({4, 2, 64});
  const Kernel best = ops::default_attention_kernel(q);
  std::vector<std::pair<Kernel, std::string_view>> all;
  if (best == Kernel::blocked) all.push_back({Kernel::blocked, "blocks"});
  if (best != Kernel::reference) all.push_back({Kernel::sdpa, "LibTorch"});
  if (!runner.device().is_cpu()) all.push_back({Kernel::reference, "matrices"});
  return all;
}

}  // namespace

void check_attention(Runner& runner) {
  for (const at::ScalarType type : runner.checked_types())
    for (const auto& [kernel, name] : kernels_for(runner, type))
      for (const std::int64_t head_dim : {64, 80, 96, 100, 128})
        for (const std::int64_t window : {0, 50}) check_one(runner, type, kernel, name, head_dim, window);
}

}  // namespace qft::selftest
