#include "token_losses.h"

#include "qft/core/error.h"

#include <algorithm>
#include <array>

#include <ATen/TensorOperators.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/topk.h>

namespace qft::engine {
namespace {

constexpr std::array<std::string_view, 3> kTokenMetrics = {"token/nll", "token/weight", "token/kl"};

/// EAFT computes the entropy of the 20 likeliest tokens only and divides it by about its maximum, ln 20.
constexpr std::int64_t kEntropyTokens = 20;
constexpr double kEntropyUnit = 3.0;

/// DFT (Wu et al. 2025, equation 8): p(label). LLaMA-Factory: use_dft_loss.
void probability(const TokenLossOptions&, const ops::HeadChunk& chunk, const at::Tensor& weights) {
  weights.copy_(at::exp(chunk.logprobs));
}

/// EAFT (arXiv 2601.02151): the entropy to the power of eaft_alpha. LLaMA-Factory: use_eaft_loss.
void entropy(const TokenLossOptions& options, const ops::HeadChunk& chunk, const at::Tensor& weights) {
  const std::int64_t tokens = std::min(kEntropyTokens, chunk.logits.size(1));
  const at::Tensor likeliest = std::get<0>(at::topk(chunk.logits, tokens, /*dim=*/1));
  const at::Tensor logp = at::log_softmax(likeliest, 1, weights.scalar_type());
  const at::Tensor nats = (at::exp(logp) * logp).sum(1).neg_();
  weights.copy_((nats / kEntropyUnit).pow_(options.eaft_alpha));
}

constexpr TokenLoss kTokenLosses[] = {{"dft", probability}, {"eaft", entropy}, {"asft", probability, true}};

/// Writes KL(q || p) of each row to `kl` [n], with the policy's softmax p and the reference's q. Returns the gradient for the
/// logits, p - q.
at::Tensor divergence(const ops::HeadChunk& chunk, const at::Tensor& kl) {
  const at::Tensor log_q = at::log_softmax(chunk.reference, 1, kl.scalar_type());
  const at::Tensor log_p = at::log_softmax(chunk.logits, 1, kl.scalar_type());
  at::Tensor difference = log_q - log_p;
  const at::Tensor q = log_q.exp_();
  kl.copy_(difference.mul_(q).sum(1));
  return log_p.exp_().sub_(q);
}

}  // namespace

std::span<const TokenLoss> token_losses() {
  return kTokenLosses;
}

const TokenLoss& token_loss(std::string_view name) {
  const auto row = std::ranges::find(kTokenLosses, name, &TokenLoss::name);
  QFT_ASSERT(row != std::end(kTokenLosses), "there is no token loss {}", name);
  return *row;
}

std::span<const std::string_view> WeightedTokenLoss::metrics() const {
  return std::span(kTokenMetrics).first(loss_.reference ? 3 : 2);
}

void WeightedTokenLoss::known_gradient(const model::MicroInput&, const at::Tensor&) const {
  fail("the gradient of a weighted label is only known after its logits");
}

at::Tensor WeightedTokenLoss::read_rows(const model::MicroInput& in, const ops::HeadChunk& chunk, const at::Tensor& values,
                                        const at::Tensor& grad) const {
  const at::Tensor weights = values[0];
  loss_.weigh(options_, chunk, weights);
  const auto weigh = [&](const at::Tensor& rows) {
    if (in.label_weights.defined()) rows.mul_(in.label_weights.narrow(0, chunk.first, chunk.size()).to(rows.scalar_type()));
  };
  weigh(weights);
  if (grad.defined()) grad.copy_(weights).div_(-denominator_);
  if (!loss_.reference) return {};
  QFT_ASSERT(chunk.reference.defined(), "loss {} has no reference here", loss_.name);
  const at::Tensor of_kl = divergence(chunk, values[1]);
  if (!grad.defined()) return {};
  const at::Tensor each = at::full({chunk.size()}, options_.asft_alpha / denominator_, of_kl.options());
  weigh(each);
  return of_kl.mul_(each.unsqueeze(1));
}

at::Tensor WeightedTokenLoss::observe(const model::MicroInput& in, const parallel::Logprobs& logprobs, const at::Tensor&) const {
  const at::Tensor nll = logprobs.policy.to(at::kDouble).neg(), weights = logprobs.rows[0].to(at::kDouble);
  const at::Tensor count = at::full({}, static_cast<double>(nll.numel()), nll.options());
  const at::Tensor loss = (nll * weights).sum();
  if (!loss_.reference) return at::stack({loss, nll.sum(), count, weights.sum(), count});
  const at::Tensor kl = logprobs.rows[1].to(at::kDouble);
  const at::Tensor added = (in.label_weights.defined() ? kl * in.label_weights : kl).sum();
  return at::stack({loss + added * options_.asft_alpha, nll.sum(), count, weights.sum(), count, kl.sum(), count});
}

}  // namespace qft::engine
