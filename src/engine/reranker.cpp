#include "reranker.h"

#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/device/upload.h"
#include "qft/engine/batch_sums.h"
#include "qft/loader/item_choice.h"
#include "qft/loader/schedule.h"
#include "qft/model/tokenizer_changes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "item_count.h"

namespace qft::engine {
namespace {

using at::Tensor;

constexpr std::string_view kRankingMetrics[] = {"acc", "mrr", "ndcg"};
constexpr std::size_t kRankingSums = 1 + 2 * std::size(kRankingMetrics);
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

RerankerOptions reranker_options(const config::FinetuningArgs& f) {
  return {f.reranker_loss == "listwise", f.listwise_temperature, f.listwise_min_group_size};
}

/// Documents [begin, end) of a micro-batch; the first one is relevant.
struct Group {
  std::size_t begin, end;
  std::size_t size() const { return end - begin; }
};

/// Returns the groups of a micro-batch's items. An item that begins with an irrelevant document has no group before its first
/// relevant one.
std::vector<Group> groups_of(std::span<const double> labels, std::span<const std::int32_t> item_offsets) {
  std::vector<Group> groups;
  for (std::size_t i = 0; i + 1 < item_offsets.size(); ++i) {
    const auto end = static_cast<std::size_t>(item_offsets[i + 1]);
    for (auto d = static_cast<std::size_t>(item_offsets[i]); d < end; ++d) {
      if (labels[d] != 1.0) continue;
      const auto next =
          std::find(labels.begin() + static_cast<std::ptrdiff_t>(d) + 1, labels.begin() + static_cast<std::ptrdiff_t>(end), 1.0);
      groups.push_back({d, static_cast<std::size_t>(next - labels.begin())});
    }
  }
  return groups;
}

/// Returns the place of the first score, from 1, the highest first; NaN if a score is not finite: NaN is not above any score,
/// so a broken model would look perfect.
double place_of_first(std::span<const double> scores) {
  if (!std::ranges::all_of(scores, [](double score) { return std::isfinite(score); })) return kNaN;
  return 1.0 + static_cast<double>(std::ranges::count_if(scores, [&](double score) { return score > scores.front(); }));
}

/// log(1 + exp(x)), finite for all x.
double softplus(double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
}

/// Returns -log softmax(x / temperature) of the first score. Adds its derivatives / groups to `grad` unless `grad` is empty.
double listwise_loss(std::span<const double> x, double temperature, double groups, std::span<double> grad) {
  const double most = std::ranges::max(x);
  double sum = 0.0;
  for (const double score : x) sum += std::exp((score - most) / temperature);
  if (!grad.empty())
    for (std::size_t i = 0; i < x.size(); ++i)
      grad[i] += (std::exp((x[i] - most) / temperature) / sum - (i == 0 ? 1.0 : 0.0)) / (temperature * groups);
  return std::log(sum) + (most - x.front()) / temperature;
}

/// Counts the documents and groups of the global batch.
class DocumentCount final : public ColumnSource {
 public:
  explicit DocumentCount(const SourceContext& context) : options_(reranker_options(context.config.finetuning)) {}

  bool observes() const override { return true; }
  void begin(std::int64_t micro_batches) override { sums_.emplace(micro_batches, 2); }
  void observe(const SourceBatch& batch, const Inputs&) override {
    for (std::size_t i = 0; i < batch.batches.size(); ++i) {
      const Column& labels = batch.batches[i].columns.at(std::string(columns::kDocumentLabels));
      const auto groups = groups_of(labels.values, batch.batches[i].item_offsets);
      const auto trained = std::ranges::count_if(
          groups, [&](const Group& g) { return static_cast<std::int64_t>(g.size()) >= options_.min_group_size; });
      sums_->set(batch.first + static_cast<std::int64_t>(i),
                 std::array{static_cast<double>(labels.values.size()), static_cast<double>(trained)});
    }
  }
  void finish(const parallel::Groups& groups, parallel::BatchTotals& totals, SourceState*) override {
    const std::vector<double> sums = sums_->all_reduce(groups);
    totals.named[std::string(totals::kDocuments)] = sums[0];
    totals.named[std::string(totals::kGroups)] = sums[1];
  }

 private:
  RerankerOptions options_;
  std::optional<BatchSums> sums_;
};

/// transformers reads a classifier's score at the last token that is not the padding token; qft at the last token.
void check_last_token(const pack::PackReader& pack, const config::RunConfig& config) {
  if (config.stage().head != config::HeadKind::classifier || pack.num_items() == 0) return;
  const auto pad = model::padding_id(config.tokenizer_path());
  if (pad && pack.item(0).sequences.front().ids.back() == *pad)
    fail_config(
        "the template ends texts with the padding token {}, and transformers and sentence-transformers would read the score one "
        "token earlier: name a template with another end, or set another pad_token in tokenizer_config.json",
        *pad);
}

/// The labels of the documents that a step draws from each item. Every epoch draws equally many of each.
class DrawnLabels {
 public:
  DrawnLabels(const pack::PackReader& pack, const config::RunConfig& config)
      : choice_(pack, config.stage().limits(config), loader::loader_options(config).seed) {}

  std::vector<double> of(std::int64_t item) const {
    std::vector<double> labels;
    for (const std::int32_t sequence : choice_.sequences(item, /*epoch=*/0))
      labels.push_back(choice_.is_positive(item, sequence) ? 1.0 : 0.0);
    return labels;
  }

 private:
  loader::ItemChoice choice_;
};

/// The listwise loss only reads groups of at least listwise_min_group_size documents.
void check_groups(const pack::PackReader& pack, const loader::ItemSubset& items, const DrawnLabels& drawn,
                  const config::FinetuningArgs& f) {
  const ItemCount small(pack, items, [&](std::int64_t item) {
    const std::vector<double> labels = drawn.of(item);
    const std::array all = {0, static_cast<std::int32_t>(labels.size())};
    return std::ranges::none_of(groups_of(labels, all), [&](const Group& group) {
      return static_cast<std::int64_t>(group.size()) >= f.listwise_min_group_size;
    });
  });
  if (small.count == 0) return;
  const std::string found = fmt::format(
      "'{}': {} of {} queries have groups of fewer than listwise_min_group_size {} documents (a relevant one and at most "
      "max_negative_samples {} others; the first is item {})",
      pack.path().string(), small.count, small.all, f.listwise_min_group_size, f.max_negative_samples, small.first);
  if (small.count == small.all)
    fail_config("{}: reranker_loss listwise learns nothing from them: add negatives, or set reranker_loss: pointwise", found);
  log::warn("{}: reranker_loss listwise learns nothing from them", found);
}

/// Every query needs a relevant document; pairs with one label each have queries without one, which only pointwise can learn.
void check_rankings(const pack::PackReader& pack, const loader::ItemSubset& items, const config::RunConfig& config) {
  check_last_token(pack, config);
  const DrawnLabels drawn(pack, config);
  const auto all_are = [&](double label) {
    return [&drawn, label](std::int64_t item) {
      return std::ranges::all_of(drawn.of(item), [&](double found) { return found == label; });
    };
  };
  const ItemCount without(pack, items, all_are(0.0)), only(pack, items, all_are(1.0));
  if (without.count == without.all)
    fail_config("'{}': all {} queries have only documents with label 0: nothing tells which documents are relevant",
                pack.path().string(), without.all);
  if (only.count == only.all)
    fail_config(
        "'{}': all {} queries have only documents with label 1: nothing tells which documents are not relevant: add negatives "
        "(columns negative, or pairs with label 0){}",
        pack.path().string(), only.all,
        config.finetuning.max_negative_samples == 0 ? ", and set max_negative_samples above 0" : "");
  if (without.count > 0 && config.finetuning.reranker_loss == "listwise")
    fail_config(
        "'{}': {} of {} queries have no relevant document (the first one is item {}), and reranker_loss listwise compares each "
        "relevant document with the others: set reranker_loss: pointwise, or remove these records",
        pack.path().string(), without.count, without.all, without.first);
  if (config.finetuning.reranker_loss == "listwise") check_groups(pack, items, drawn, config.finetuning);
}

constexpr std::string_view kRerankerColumns[] = {columns::kDocumentLabels};

constexpr ObjectiveRow kRerankerObjective = {
    .name = "reranker",
    .kind = parallel::ObjectiveKind::sequence_level,
    .columns = kRerankerColumns,
    .make = [](const config::RunConfig& config, const parallel::BatchTotals& totals) -> std::unique_ptr<parallel::Objective> {
      return std::make_unique<RerankerLoss>(reranker_options(config.finetuning), totals);
    },
    .make_sources =
        [](const SourceContext& context) {
          Sources sources;
          sources.push_back(std::make_unique<DocumentCount>(context));
          return sources;
        },
    .check_items = check_rankings};

}  // namespace

const ObjectiveRow& reranker_objective(const config::RunConfig&) {
  return kRerankerObjective;
}

double RerankerLoss::denominator() const {
  return std::max(1.0, totals_.at(options_.listwise ? totals::kGroups : totals::kDocuments));
}

std::span<const std::string_view> RerankerLoss::metrics() const {
  return kRankingMetrics;
}

Tensor RerankerLoss::observe(const model::MicroInput& in, const parallel::Logprobs& scores, const Tensor& grad) const {
  const Tensor on_host = scores.policy.to(at::kCPU, at::kDouble).contiguous().view({-1});
  const std::span x(on_host.const_data_ptr<double>(), static_cast<std::size_t>(on_host.numel()));
  const Tensor label_tensor = in.columns.at(columns::kDocumentLabels).values.to(at::kCPU, at::kDouble).contiguous();
  const std::span z(label_tensor.const_data_ptr<double>(), static_cast<std::size_t>(label_tensor.numel()));
  require(z.size() == x.size(), "{} documents have {} labels", x.size(), z.size());
  std::vector<double> by_score(grad.defined() ? x.size() : 0, 0.0);
  std::array<double, kRankingSums> sums = {};
  double& loss = sums[0];
  const auto add = [&](std::size_t metric, double value) { sums[1 + 2 * metric] += value, sums[2 + 2 * metric] += 1.0; };
  if (!options_.listwise)
    for (std::size_t d = 0; d < x.size(); ++d) {
      loss += softplus(x[d]) - z[d] * x[d];
      if (grad.defined()) by_score[d] = (1.0 / (1.0 + std::exp(-x[d])) - z[d]) / denominator();
      add(0, std::isfinite(x[d]) ? static_cast<double>((x[d] > 0.0) == (z[d] == 1.0)) : kNaN);
    }
  for (const Group& g : groups_of(z, in.item_offsets)) {
    const auto group = x.subspan(g.begin, g.size());
    if (options_.listwise && static_cast<std::int64_t>(g.size()) >= options_.min_group_size)
      loss += listwise_loss(group, options_.temperature, denominator(),
                            grad.defined() ? std::span(by_score).subspan(g.begin, g.size()) : std::span<double>());
    if (g.size() < 2) continue;
    const double place = place_of_first(group);
    if (options_.listwise) add(0, std::isnan(place) ? kNaN : static_cast<double>(place == 1.0));
    add(1, 1.0 / place);
    add(2, 1.0 / std::log2(1.0 + place));
  }
  if (grad.defined()) grad.copy_(device::upload(std::span<const double>(by_score), grad.device()).view_as(grad));
  return device::upload(std::span<const double>(sums), scores.policy.device());
}

}  // namespace qft::engine
