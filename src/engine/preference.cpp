#include "preference.h"

#include "qft/comm/exchange.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/device/upload.h"
#include "qft/engine/batch_sums.h"
#include "qft/engine/instance.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "item_count.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>

namespace qft::engine {
namespace {

using at::Tensor;

/// The mean reward of the batch; in training the mean over the steps' means. The same bits on any number of ranks.
class MeanReward final : public ColumnSource {
 public:
  explicit MeanReward(const SourceContext& context) : config_(context.config), instance_(context.instance) {}

  bool observes() const override { return true; }
  void begin(std::int64_t micro_batches) override { sums_.emplace(micro_batches, kWidth); }
  void observe(const SourceBatch& batch, const Inputs& inputs) override;
  void finish(const parallel::Groups& groups, parallel::BatchTotals& totals, SourceState* state) override;

 private:
  static constexpr std::size_t kWidth = 2;  ///< sum and count of rewards
  const config::RunConfig& config_;
  Instance& instance_;
  std::optional<BatchSums> sums_;
};

void MeanReward::observe(const SourceBatch& batch, const Inputs& inputs) {
  const auto scored = inputs();
  // The objective's own reward metrics, each a sum and a count. They do not depend on the baseline.
  const auto objective = objective_of(config_).make(config_, {.items = 1.0, .named = {{std::string(totals::kReward), 0.0}}});
  const auto names = objective->metrics();
  const auto at = [&](std::string_view name) { return 1 + 2 * (std::ranges::find(names, name) - names.begin()); };
  const std::int64_t chosen = at("rewards/chosen"), rejected = at("rewards/rejected");
  std::vector<at::Tensor> sums;
  instance_.executor().evaluate(
      instance_.evaluation_list(static_cast<int>(scored.size()), static_cast<int>(batch.rounds)), scored,
      [&](const parallel::Logprobs& p) { sums.push_back(objective->observe(scored[sums.size()], p, {})); }, objective.get());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const at::Tensor of = sums[i].cpu();
    const double* v = of.const_data_ptr<double>();
    sums_->set(batch.first + static_cast<std::int64_t>(i), std::array{v[chosen] + v[rejected], v[chosen + 1] + v[rejected + 1]});
  }
}

void MeanReward::finish(const parallel::Groups& groups, parallel::BatchTotals& totals, SourceState* state) {
  const std::vector<double> sums = sums_->all_reduce(groups);
  double mean = sums[1] == 0.0 ? 0.0 : sums[0] / sums[1];
  if (state != nullptr) {
    const RunningMean next = state->means[std::string(totals::kReward)].with(mean);
    mean = next.mean;
    if (std::isfinite(mean)) state->means[std::string(totals::kReward)] = next;
  }
  totals.named[std::string(totals::kReward)] = mean;
}

/// The number of labels of chosen answers.
class ChosenLabels final : public ColumnSource {
 public:
  bool observes() const override { return true; }
  void begin(std::int64_t) override { labels_ = 0; }
  void observe(const SourceBatch& batch, const Inputs&) override {
    for (const loader::MicroBatch& micro : batch.batches)
      labels_ += static_cast<std::int64_t>(loader::select_sequence(micro, 0).label_positions.size());
  }
  void finish(const parallel::Groups& groups, parallel::BatchTotals& totals, SourceState*) override {
    totals.named[std::string(totals::kChosenLabels)] =
        static_cast<double>(comm::all_reduce_value(groups.data(), labels_, comm::ReduceOp::sum));
  }

 private:
  std::int64_t labels_ = 0;
};

/// True if the loss compares rewards with their mean, which must be known before the gradients (pref_bco_weight).
bool compares_rewards(const config::RunConfig& config) {
  return config.finetuning.pref_bco_weight > 0;
}

/// Returns the sources of the totals totals::kReward, if the loss compares rewards, and totals::kChosenLabels, for gradients with
/// rpo_alpha.
Sources pair_sources(const SourceContext& context) {
  Sources sources;
  if (compares_rewards(context.config)) sources.push_back(std::make_unique<MeanReward>(context));
  if (context.training && context.config.finetuning.rpo_alpha > 0) sources.push_back(std::make_unique<ChosenLabels>());
  return sources;
}

constexpr std::string_view kPreferenceMetrics[] = {"rewards/chosen",  "rewards/rejected", "rewards/accuracies",
                                                   "rewards/margins", "logps/chosen",     "logps/rejected"};
constexpr std::string_view kOrpoMetrics[] = {"sft_loss", "odds_ratio_loss"};
/// Means over labels; the last one only with rpo_alpha.
constexpr std::string_view kLabelMetrics[] = {"logits/chosen", "logits/rejected", "nll_loss"};

/// Terms of a loss that depends only on the margin.
PairTerms of_margin(const Tensor& loss, const Tensor& by_margin) {
  return {loss, by_margin, -by_margin};
}

/// DPO (Rafailov et al. 2023, equation 7); with label smoothing cDPO (Mitchell 2023). TRL: loss_type sigmoid. Without a
/// reference: CPO (Xu et al. 2024, equation 3).
PairTerms sigmoid(const PairOptions& o, const Tensor& chosen, const Tensor& rejected) {
  const Tensor logits = (chosen - rejected) * o.beta;
  const double kept = 1.0 - o.label_smoothing, changed = o.label_smoothing;
  return of_margin(at::log_sigmoid(logits) * -kept - at::log_sigmoid(-logits) * changed,
                   (at::sigmoid(logits) * changed - at::sigmoid(-logits) * kept) * o.beta);
}

/// RSO (Liu et al. 2023): the hinge loss of SLiC (Zhao et al. 2023). TRL: loss_type hinge.
PairTerms hinge(const PairOptions& o, const Tensor& chosen, const Tensor& rejected) {
  const Tensor missing = 1.0 - (chosen - rejected) * o.beta;
  return of_margin(at::relu(missing), missing.gt(0.0).to(at::kDouble) * -o.beta);
}

/// IPO (Azar et al. 2023, equation 17), with means as in TRL and LLaMA-Factory; beta is the paper's tau.
PairTerms ipo(const PairOptions& o, const Tensor& chosen, const Tensor& rejected) {
  const Tensor distance = chosen - rejected - 1.0 / (2.0 * o.beta);
  return of_margin(distance.square(), distance * 2.0);
}

/// SimPO (Meng et al. 2024, equation 6). LLaMA-Factory: simpo_loss.
PairTerms simpo(const PairOptions& o, const Tensor& chosen, const Tensor& rejected) {
  const Tensor logits = (chosen - rejected) * o.beta - o.gamma;
  return of_margin(-at::log_sigmoid(logits), at::sigmoid(-logits) * -o.beta);
}

/// 1 - p and log(1 - p) from log p. An answer with p = 1 (certain or empty) counts as almost certain, so all results stay finite.
struct Complement {
  Tensor value, log;
  explicit Complement(const Tensor& logp) : value(-at::expm1(logp.clamp_max(-1e-12))), log(value.log()) {}
};

/// ORPO (Hong et al. 2024, equations 6 and 7), with means. LLaMA-Factory: odds_ratio_loss.
PairTerms orpo(const PairOptions& o, const Tensor& chosen, const Tensor& rejected) {
  const Complement not_chosen(chosen), not_rejected(rejected);
  const Tensor log_odds = (chosen - not_chosen.log) - (rejected - not_rejected.log);
  const Tensor ratio = -at::log_sigmoid(log_odds), by_odds = at::sigmoid(-log_odds) * -o.beta;
  return {ratio * o.beta - chosen, by_odds / not_chosen.value - 1.0, -by_odds / not_rejected.value, {-chosen, ratio}};
}

constexpr PairLoss kPairLosses[] = {
    {.name = "sigmoid", .reference = true, .terms = sigmoid},
    {.name = "hinge", .reference = true, .terms = hinge},
    {.name = "ipo", .reference = true, .mean = true, .terms = ipo},
    {.name = "orpo", .mean = true, .terms = orpo, .metrics = kOrpoMetrics},
    {.name = "simpo", .mean = true, .terms = simpo},
    {.name = "cpo", .terms = sigmoid},
};

constexpr std::string_view kPairColumns[] = {columns::kReference};

PairOptions pair_options(const config::FinetuningArgs& f) {
  return {f.pref_beta, f.simpo_gamma, f.pref_ftx, f.dpo_label_smoothing, f.rpo_alpha, f.ld_alpha, f.pref_bco_weight};
}

std::unique_ptr<parallel::Objective> make_pair_loss(const config::RunConfig& config, const parallel::BatchTotals& totals) {
  return std::make_unique<PreferenceLoss>(pair_loss(config.finetuning.pref_loss), pair_options(config.finetuning), totals);
}

std::vector<ObjectiveRow> pair_rows() {
  std::vector<ObjectiveRow> rows;
  for (const PairLoss& loss : kPairLosses)
    rows.push_back({.name = loss.name,
                    .kind = parallel::ObjectiveKind::sequence_level,
                    .columns = std::span(kPairColumns).first(loss.reference ? 1 : 0),
                    .make = make_pair_loss,
                    .make_sources = pair_sources,
                    .scores_first = compares_rewards,
                    .check_items = check_pairs});
  return rows;
}

}  // namespace

const ObjectiveRow& pair_objective(const config::RunConfig& config) {
  static const std::vector<ObjectiveRow> rows = pair_rows();
  const auto row = std::ranges::find(rows, config.finetuning.pref_loss, &ObjectiveRow::name);
  if (row == rows.end())
    fail_config("pref_loss {} is not implemented: qft --help lists the implemented ones", config.finetuning.pref_loss);
  return *row;
}

void check_pairs(const pack::PackReader& pack, const loader::ItemSubset& items, const config::RunConfig&) {
  const std::vector<std::int64_t> tokens = pack.sequence_tokens();
  const ItemCount equal(pack, items, [&](std::int64_t number) {
    const auto first = static_cast<std::size_t>(2 * number);
    if (tokens.at(first) != tokens.at(first + 1)) return false;  // so few items are decoded
    const encode::EncodedItem item = pack.item(number);
    return item.sequences.front().ids == item.sequences.back().ids;
  });
  if (equal.count > 0 && equal.count == equal.all)
    fail_config("'{}': all {} pairs have equal chosen and rejected answers: are the columns chosen and rejected the same?{}",
                pack.path().string(), equal.all, cut_words(pack));
  if (equal.count > 0)
    log::warn(
        "'{}': {} of {} pairs (the first: item {}) have equal chosen and rejected answers: nothing can be learned "
        "from them; take them out of the data{}",
        pack.path().string(), equal.count, equal.all, equal.first, cut_words(pack));
}

void require_pairs(const model::MicroInput& in) {
  for (std::size_t i = 1; i < in.item_offsets.size(); ++i)
    require(in.item_offsets[i] - in.item_offsets[i - 1] == 2,
            "expected pairs of a chosen and a rejected sequence, but an item has {} sequences",
            in.item_offsets[i] - in.item_offsets[i - 1]);
}

std::span<const PairLoss> pair_losses() {
  return kPairLosses;
}

const PairLoss& pair_loss(std::string_view name) {
  const auto row = std::ranges::find(kPairLosses, name, &PairLoss::name);
  require(row != std::end(kPairLosses), "there is no pref_loss {}", name);
  return *row;
}

PreferenceLoss::PreferenceLoss(const PairLoss& loss, const PairOptions& options, const parallel::BatchTotals& totals)
    : loss_(loss), options_(options), totals_(totals), names_(std::begin(kPreferenceMetrics), std::end(kPreferenceMetrics)) {
  names_.insert(names_.end(), loss.metrics.begin(), loss.metrics.end());
  names_.insert(names_.end(), std::begin(kLabelMetrics), std::end(kLabelMetrics) - (options.rpo_alpha > 0 ? 0 : 1));
}

PairTerms with_bco(const PairTerms& terms, const PairOptions& o, double baseline, const Tensor& chosen, const Tensor& rejected) {
  const Tensor gain = chosen * o.beta - baseline, pain = baseline - rejected * o.beta;
  const Tensor loss = -at::log_sigmoid(gain) - at::log_sigmoid(pain);
  const Tensor by_chosen = at::sigmoid(-gain) * -o.beta, by_rejected = at::sigmoid(-pain) * o.beta;
  const auto mixed = [&](const Tensor& pairs, const Tensor& bco) { return (pairs + bco * o.bco) / (1.0 + o.bco); };
  return {mixed(terms.loss, loss), mixed(terms.by_chosen, by_chosen), mixed(terms.by_rejected, by_rejected), terms.metrics};
}

/// Writes the mean of each row.
Tensor PreferenceLoss::read_rows(const model::MicroInput&, const ops::HeadChunk& chunk, const Tensor& values,
                                 const Tensor&) const {
  // On a CPU a sum in a wider type copies its rows, so sum a few rows at a time.
  const std::int64_t rows = chunk.size(), step = chunk.logits.is_cpu() ? 4 : rows;
  for (std::int64_t first = 0; first < rows; first += step) {
    const std::int64_t count = std::min(step, rows - first);
    Tensor sums = values[0].narrow(0, first, count);
    at::sum_out(sums, chunk.logits.narrow(0, first, count), {1}, /*keepdim=*/false, values.scalar_type());
  }
  chunk.sum_over_vocabulary(values[0]);
  values[0].div_(chunk.vocabulary_size());
  return {};
}

double PreferenceLoss::summarise(std::map<std::string, double>& metrics) const {
  const auto nll = metrics.find("nll_loss");
  return nll == metrics.end() ? 0.0 : options_.rpo_alpha * nll->second;
}

Tensor PreferenceLoss::label_weights(const model::MicroInput& in, const Tensor& counts) const {
  if (!options_.ld_alpha) return {};
  // Counted as in LLaMA-Factory: positions from an answer's first label on, including positions between labels.
  const Tensor& rows = in.labels.rows;
  const auto labels = rows.numel();
  const Tensor offsets =
      device::upload(std::vector<std::int32_t>(in.label_offsets.begin(), in.label_offsets.end() - 1), rows.device());
  const Tensor first = labels == 0 ? offsets : rows.index_select(0, offsets.clamp_max(labels - 1));
  const Tensor shorter = counts.view({-1, 2}).amin(1, /*keepdim=*/true).expand({-1, 2}).reshape({-1});
  const Tensor end = at::repeat_interleave(first + shorter, counts, /*dim=*/0, /*output_size=*/labels);
  const auto number = [&](double value) { return at::scalar_tensor(value, rows.options().dtype(at::kDouble)); };
  return at::where(rows.lt(end), number(1.0), number(*options_.ld_alpha));  // two plain numbers would give fp32
}

Tensor PreferenceLoss::observe_sequences(const model::MicroInput& in, const parallel::SequenceSums& sums,
                                         const Tensor& grad) const {
  require_pairs(in);
  require(sums.reference.defined() == loss_.reference, "pref_loss {}: the reference is {}", loss_.name,
          loss_.reference ? "missing" : "unexpected");
  const Tensor lengths = sums.counts.clamp_min(1.0);  // the mean over no labels is 0: the answer was cut off
  const Tensor logps = loss_.mean ? sums.policy / lengths : sums.policy;
  const auto side = [](const Tensor& values, std::int64_t which) { return values.view({-1, 2}).select(1, which); };
  Tensor values = logps;
  if (loss_.reference) values = logps - (loss_.mean ? sums.reference / lengths : sums.reference);
  const Tensor chosen = side(values, 0), rejected = side(values, 1), margins = chosen - rejected;
  PairTerms terms = loss_.terms(options_, chosen, rejected);
  if (options_.bco > 0) terms = with_bco(terms, options_, totals_.at(totals::kReward), chosen, rejected);
  if (grad.defined()) {
    const Tensor by_value = at::stack({terms.by_chosen, terms.by_rejected}, 1).view({-1});
    grad.copy_((loss_.mean ? by_value / lengths : by_value) / totals_.items);
    const double by_label = options_.rpo_alpha > 0 ? options_.rpo_alpha / std::max(totals_.at(totals::kChosenLabels), 1.0) : 0.0;
    side(grad, 0).sub_(options_.ftx / totals_.items / side(lengths, 0) + by_label);
  }
  std::vector<Tensor> metrics = {chosen * options_.beta,  rejected * options_.beta, margins.gt(0.0).to(at::kDouble),
                                 margins * options_.beta, side(logps, 0),           side(logps, 1)};
  metrics.insert(metrics.end(), terms.metrics.begin(), terms.metrics.end());
  const Tensor totals = at::stack(metrics).sum(1);
  const Tensor pairs = at::full_like(totals, static_cast<double>(margins.numel()));
  const Tensor loss = terms.loss.sum() - side(sums.policy / lengths, 0).sum() * options_.ftx;
  return at::cat({loss.view({1}), at::stack({totals, pairs}, 1).view({-1}), label_sums(sums)});
}

/// Returns a sum and a count for each of kLabelMetrics.
Tensor PreferenceLoss::label_sums(const parallel::SequenceSums& sums) const {
  const auto by_side = [](const Tensor& values) { return values.view({-1, 2}).sum(0); };
  const Tensor counts = by_side(sums.counts);
  const Tensor logits = at::stack({by_side(sums.rows[0]), counts}, 1).view({-1});
  if (options_.rpo_alpha == 0.0) return logits;
  return at::cat({logits, by_side(sums.policy).select(0, 0).neg().view({1}), counts.narrow(0, 0, 1)});
}

}  // namespace qft::engine
