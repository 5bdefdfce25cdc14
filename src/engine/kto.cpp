#include "kto.h"

#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/encode/item_columns.h"
#include "qft/engine/batch_sums.h"
#include "qft/engine/instance.h"
#include "qft/engine/step_inputs.h"

#include <array>
#include <numeric>
#include <optional>
#include <vector>

#include "item_count.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>

namespace qft::engine {
namespace {

using at::Tensor;

constexpr std::string_view kKtoMetrics[] = {"rewards/chosen", "rewards/rejected", "logps/chosen", "logps/rejected", "kl"};

/// The KL divergence of the policy from the reference, from the items' second sequences, and the totals of the first ones. The
/// same bits on any number of ranks.
class KlEstimate final : public ColumnSource {
 public:
  explicit KlEstimate(const SourceContext& context) : instance_(context.instance), reference_(context.reference) {}

  bool observes() const override { return true; }
  void begin(std::int64_t micro_batches) override { sums_.emplace(micro_batches, kWidth); }
  void observe(const SourceBatch& batch, const Inputs& inputs) override;
  void finish(comm::Communicator& data, parallel::BatchTotals& totals, SourceState* state) override;

 private:
  static constexpr std::size_t kWidth = 4;  ///< sum of the log-ratios, items, desirable items, trained tokens
  Instance& instance_;
  ColumnSource* reference_;
  std::optional<BatchSums> sums_;
};

void KlEstimate::observe(const SourceBatch& batch, const Inputs&) {
  std::vector<loader::MicroBatch> others;
  for (const loader::MicroBatch& micro : batch.batches) others.push_back(loader::select_sequence(micro, 1));
  const auto inputs = make_inputs(instance_, reference_, batch.of(others));
  std::vector<Tensor> ratios;
  instance_.executor().evaluate(
      instance_.evaluation_list(static_cast<int>(inputs.size()), static_cast<int>(batch.rounds)), inputs,
      [&](const parallel::Logprobs& p) {
        ratios.push_back((parallel::sequence_sums(inputs[ratios.size()], p.policy) - p.reference).sum());
      });
  if (ratios.empty()) return;
  const Tensor all = at::stack(ratios).cpu();
  for (std::size_t i = 0; i < ratios.size(); ++i) {
    const Column& desirable = others[i].columns.at(std::string(columns::kDesirable));
    const std::size_t trained = batch.batches[i].tokens.size() - static_cast<std::size_t>(inputs[i].sequences.num_rows());
    sums_->set(batch.first + static_cast<std::int64_t>(i),
               std::array{all.const_data_ptr<double>()[i], static_cast<double>(desirable.size()),
                          std::accumulate(desirable.values.begin(), desirable.values.end(), 0.0), static_cast<double>(trained)});
  }
}

void KlEstimate::finish(comm::Communicator& data, parallel::BatchTotals& totals, SourceState*) {
  const std::vector<double> sums = sums_->all_reduce(data);
  totals.named[std::string(totals::kKl)] = sums[0] < 0.0 || sums[1] == 0.0 ? 0.0 : sums[0] / sums[1];  // NaN stays NaN
  totals.named[std::string(totals::kDesirable)] = sums[2];
  totals.tokens = sums[3];
}

/// KTO needs both desirable and undesirable answers. Its authors advise a total weight ratio between 1:1 and 4:3.
void check_feedback(const pack::PackReader& pack, const loader::ItemSubset& items, const config::RunConfig& config) {
  const config::FinetuningArgs& f = config.finetuning;
  const std::vector<std::string> tags = pack.item_tags();
  const ItemCount desirable(pack, items, [&](std::int64_t number) {
    return encode::is_desirable(pack::tags_from_json(tags.at(static_cast<std::size_t>(number))));
  });
  const std::int64_t others = desirable.all - desirable.count;
  if (desirable.count == 0 || others == 0)
    fail_config(
        "'{}': all {} answers are {}: stage kto learns from both kinds; is '{}' of dataset_info.json the right column? For "
        "answers that are all good use stage sft",
        pack.path().string(), desirable.all, desirable.count == 0 ? "undesirable" : "desirable", encode::kFeedbackTag);
  const double even = f.kto_rejected_weight * static_cast<double>(others) / static_cast<double>(desirable.count);
  if (even == 0.0) return;  // asked for: kto_rejected_weight is 0
  const double balance = f.kto_chosen_weight / even;
  if (balance < 0.99 || balance > 4.0 / 3.0 + 0.01)
    log::warn(
        "'{}': {} desirable answers of weight {} and {} others of weight {}: their total weights are {:.2f} to 1, but 1 to 1.33 "
        "is advised: set kto_chosen_weight between {:.2f} and {:.2f}",
        pack.path().string(), desirable.count, f.kto_chosen_weight, others, f.kto_rejected_weight, balance, even,
        even * 4.0 / 3.0);
}

constexpr std::string_view kKtoColumns[] = {columns::kReference, columns::kDesirable};

constexpr ObjectiveRow kKtoObjective = {
    .name = "kto",
    .kind = parallel::ObjectiveKind::sequence_level,
    .columns = kKtoColumns,
    .make = [](const config::RunConfig& config, const parallel::BatchTotals& totals) -> std::unique_ptr<parallel::Objective> {
      const auto& f = config.finetuning;
      return std::make_unique<KtoLoss>(KtoOptions{f.pref_beta, f.pref_ftx, f.kto_chosen_weight, f.kto_rejected_weight}, totals);
    },
    .make_sources =
        [](const SourceContext& context) {
          Sources sources;
          sources.push_back(std::make_unique<KlEstimate>(context));
          return sources;
        },
    .check_items = check_feedback};

}  // namespace

const ObjectiveRow& kto_objective(const config::RunConfig&) {
  return kKtoObjective;
}

std::span<const std::string_view> KtoLoss::metrics() const {
  return kKtoMetrics;
}

double KtoLoss::summarise(std::map<std::string, double>& metrics) const {
  const auto chosen = metrics.find("rewards/chosen"), rejected = metrics.find("rewards/rejected");
  if (chosen != metrics.end() && rejected != metrics.end()) metrics["rewards/margins"] = chosen->second - rejected->second;
  return 0.0;
}

Tensor KtoLoss::observe_sequences(const model::MicroInput& in, const parallel::SequenceSums& sums, const Tensor& grad) const {
  require(sums.reference.defined(), "stage kto: the reference is missing");
  const Tensor& desirable = in.columns.at(columns::kDesirable).values;
  const double kl = totals_.at(totals::kKl), all_desirable = totals_.at(totals::kDesirable);
  const Tensor sign = desirable * 2.0 - 1.0, undesirable = 1.0 - desirable;
  const Tensor weight = desirable * options_.chosen_weight + undesirable * options_.rejected_weight;
  const Tensor ratio = sums.policy - sums.reference, reward = ratio * options_.beta;
  const Tensor gain = at::sigmoid(sign * (ratio - kl) * options_.beta);
  const Tensor lengths = sums.counts.clamp_min(1.0);  // the mean over no labels is 0: the answer was cut off
  const double ftx = all_desirable > 0 ? options_.ftx * (totals_.items / all_desirable) * (totals_.items / all_desirable) : 0.0;
  const Tensor by_mean = desirable * -ftx;
  if (grad.defined()) grad.copy_((weight * sign * gain * (gain - 1.0) * options_.beta + by_mean / lengths) / totals_.items);
  const Tensor loss = (weight * (1.0 - gain) + by_mean * (sums.policy / lengths)).sum();
  const Tensor all = at::ones_like(desirable);
  const Tensor totals =
      at::stack({reward * desirable, reward * undesirable, sums.policy * desirable, sums.policy * undesirable, all * kl}).sum(1);
  const Tensor counts = at::stack({desirable, undesirable, desirable, undesirable, all}).sum(1);
  return at::cat({loss.view({1}), at::stack({totals, counts}, 1).view({-1})});
}

}  // namespace qft::engine
