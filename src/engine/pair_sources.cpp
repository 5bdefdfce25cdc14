#include "pair_sources.h"

#include "qft/comm/exchange.h"
#include "qft/engine/batch_sums.h"
#include "qft/engine/instance.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

namespace qft::engine {
namespace {

/// The mean reward of the batch; in training the mean over the steps' means. The same bits on any number of ranks.
class MeanReward final : public ColumnSource {
 public:
  explicit MeanReward(const SourceContext& context) : config_(context.config), instance_(context.instance) {}

  bool observes() const override { return true; }
  void begin(std::int64_t micro_batches) override { sums_.emplace(micro_batches, kWidth); }
  void observe(const SourceBatch& batch, const Inputs& inputs) override;
  void finish(comm::Communicator& data, parallel::BatchTotals& totals, SourceState* state) override;

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

void MeanReward::finish(comm::Communicator& data, parallel::BatchTotals& totals, SourceState* state) {
  const std::vector<double> sums = sums_->all_reduce(data);
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
  void finish(comm::Communicator& data, parallel::BatchTotals& totals, SourceState*) override {
    totals.named[std::string(totals::kChosenLabels)] =
        static_cast<double>(comm::all_reduce_value(data, labels_, comm::ReduceOp::sum));
  }

 private:
  std::int64_t labels_ = 0;
};

}  // namespace

bool compares_rewards(const config::RunConfig& config) {
  return config.finetuning.pref_bco_weight > 0;
}

Sources pair_sources(const SourceContext& context) {
  Sources sources;
  if (compares_rewards(context.config)) sources.push_back(std::make_unique<MeanReward>(context));
  if (context.training && context.config.finetuning.rpo_alpha > 0) sources.push_back(std::make_unique<ChosenLabels>());
  return sources;
}

}  // namespace qft::engine
