#include "token_losses.h"

#include "qft/core/error.h"

#include <algorithm>
#include <array>

#include <ATen/TensorOperators.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/stack.h>

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
  const at::Tensor logp = at::log_softmax(chunk.largest_logits(kEntropyTokens), 1, weights.scalar_type());
  const at::Tensor nats = (at::exp(logp) * logp).sum(1).neg_();
  weights.copy_((nats / kEntropyUnit).pow_(options.eaft_alpha));
}

constexpr TokenLoss kTokenLosses[] = {{"dft", probability, &config::FinetuningArgs::use_dft_loss},
                                      {"eaft", entropy, &config::FinetuningArgs::use_eaft_loss},
                                      {"asft", probability, &config::FinetuningArgs::use_asft_loss, true}};

constexpr std::string_view kTokenColumns[] = {columns::kReferenceRows};

/// Returns the row that a key selects; null: cross-entropy.
const TokenLoss* selected(const config::RunConfig& config) {
  const auto row = std::ranges::find_if(kTokenLosses, [&](const TokenLoss& loss) { return config.finetuning.*loss.key; });
  return row == std::end(kTokenLosses) ? nullptr : row;
}

std::unique_ptr<parallel::Objective> make_token_loss(const config::RunConfig& config, const parallel::BatchTotals& totals) {
  const TokenLoss* loss = selected(config);
  if (loss == nullptr) return std::make_unique<parallel::TokenMeanLoss>(totals);
  const TokenLossOptions options{config.finetuning.eaft_alpha, config.finetuning.asft_alpha};
  return std::make_unique<WeightedTokenLoss>(*loss, options, totals);
}

/// Cross-entropy first, then the rows of kTokenLosses.
std::vector<ObjectiveRow> token_rows() {
  std::vector<ObjectiveRow> rows = {{.name = "cross_entropy", .make = make_token_loss, .loss_is_nll = true}};
  for (const TokenLoss& loss : kTokenLosses)
    rows.push_back(
        {.name = loss.name, .columns = std::span(kTokenColumns).first(loss.reference ? 1 : 0), .make = make_token_loss});
  return rows;
}

/// Writes KL(q || p) of each row to `kl` [n], with the policy's softmax p and the reference's q. Returns the gradient for the
/// logits, p - q.
at::Tensor divergence(const ops::HeadChunk& chunk, const at::Tensor& kl) {
  const at::Tensor log_q = chunk.log_softmax(chunk.reference, kl.scalar_type());
  const at::Tensor log_p = chunk.log_softmax(chunk.logits, kl.scalar_type());
  at::Tensor difference = log_q - log_p;
  const at::Tensor q = log_q.exp_();
  kl.copy_(difference.mul_(q).sum(1));
  chunk.sum_over_vocabulary(kl);
  return log_p.exp_().sub_(q);
}

}  // namespace

const ObjectiveRow& token_objective(const config::RunConfig& config) {
  static const std::vector<ObjectiveRow> rows = token_rows();
  const TokenLoss* loss = selected(config);
  return loss == nullptr ? rows.front() : rows[static_cast<std::size_t>(loss - kTokenLosses) + 1];
}

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

at::Tensor WeightedTokenLoss::read_rows(const model::MicroInput& in, const ops::HeadChunk& chunk, const at::Tensor& values,
                                        const at::Tensor& grad) const {
  const at::Tensor weights = values[0];
  loss_.weigh(options_, chunk, weights);
  const at::Tensor given = in.columns.find(columns::kLabelWeights);
  const auto weigh = [&](const at::Tensor& rows) {
    if (given.defined()) rows.mul_(given.narrow(0, chunk.first, chunk.size()).to(rows.scalar_type()));
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
  const at::Tensor kl = logprobs.rows[1].to(at::kDouble), given = in.columns.find(columns::kLabelWeights);
  const at::Tensor added = (given.defined() ? kl * given : kl).sum();
  return at::stack({loss + added * options_.asft_alpha, nll.sum(), count, weights.sum(), count, kl.sum(), count});
}

}  // namespace qft::engine
