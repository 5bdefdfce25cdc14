#include "embedding.h"

#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/encode/item.h"
#include "qft/encode/item_columns.h"

#include <memory>

#include "item_count.h"

namespace qft::engine {
namespace {

bool is_zero_or_one(double label) {
  return label == 0.0 || label == 1.0;
}

/// Returns the label of an item's pair; nothing if it has none, or several.
std::optional<double> pair_label(const std::string& tags) {
  const auto label = encode::targets_from_tags(pack::tags_from_json(tags));
  return label && label->size() == 1 ? std::optional(label->front()) : std::nullopt;
}

/// Pairs need labels, of 0 and 1 for contrastive losses.
void check_pair_labels(const pack::PackReader& pack, const loader::ItemSubset& items, const std::string& loss,
                       const std::vector<std::string>& tags) {
  const auto tag = [&](std::int64_t item) -> const std::string& { return tags.at(static_cast<std::size_t>(item)); };
  const ItemCount without(pack, items, [&](std::int64_t item) { return !pair_label(tag(item)); });
  if (without.count > 0)
    fail_config(
        "'{}': {} of {} records have no label (the first is item {}), but embedding_loss {} learns labels of pairs: name their "
        "column as label in dataset_info.json, or set embedding_loss: infonce",
        pack.path().string(), without.count, without.all, without.first, loss);
  if (loss == "cosine_similarity") return;
  const ItemCount others(pack, items, [&](std::int64_t item) { return !is_zero_or_one(*pair_label(tag(item))); });
  if (others.count > 0)
    fail_config(
        "'{}': {} of {} records have a label other than 0 and 1 (item {} has {}), but embedding_loss {} takes 1 for near pairs and "
        "0 for far ones: set embedding_loss: cosine_similarity for degrees",
        pack.path().string(), others.count, others.all, others.first, *pair_label(tag(others.first)), loss);
}

void check_texts(const pack::PackReader& pack, const loader::ItemSubset& items, const config::RunConfig& config) {
  const config::FinetuningArgs& f = config.finetuning;
  const std::vector<std::string> tags = pack.item_tags();
  const std::vector<std::int64_t> offsets = pack.item_offsets();
  const auto sequences = [&](std::int64_t item) {
    const auto i = static_cast<std::size_t>(item);
    return offsets.at(i + 1) - offsets.at(i);
  };
  const ItemCount alone(pack, items, [&](std::int64_t item) { return sequences(item) < 2; });
  if (alone.count > 0)
    fail_config(
        "'{}': {} of {} records have no positive document (the first is item {}): name its column as positive in "
        "dataset_info.json, or remove these records",
        pack.path().string(), alone.count, alone.all, alone.first);
  if (f.embedding_loss != "infonce") {
    const ItemCount longer(pack, items, [&](std::int64_t item) { return sequences(item) > 2; });
    if (longer.count > 0)
      fail_config(
          "'{}': {} of {} records have negatives (the first is item {}), but embedding_loss {} learns pairs: write each negative "
          "as a pair with label 0, or set embedding_loss: infonce",
          pack.path().string(), longer.count, longer.all, longer.first, f.embedding_loss);
    return check_pair_labels(pack, items, f.embedding_loss, tags);
  }
  const ItemCount far(pack, items, [&](std::int64_t item) { return pair_label(tags.at(static_cast<std::size_t>(item))) == 0.0; });
  if (far.count > 0)
    log::warn(
        "'{}': {} of {} records have label 0, but embedding_loss infonce ignores labels and takes their positive as near: leave them "
        "out with min_label in dataset_info.json",
        pack.path().string(), far.count, far.all);
  if (!f.infonce_hard_negatives && f.infonce_use_batch) return;
  const ItemCount bare(pack, items, [&](std::int64_t item) { return sequences(item) < 3; });
  if (bare.count > 0)
    fail_config("'{}': {} of {} records have no negative (the first is item {}), but {}: add negatives, or remove the key",
                pack.path().string(), bare.count, bare.all, bare.first,
                f.infonce_hard_negatives ? fmt::format("infonce_hard_negatives is {}", *f.infonce_hard_negatives)
                                         : "infonce_use_batch is false, so an anchor is compared only with its own");
}

std::span<const double> numbers_of(const Columns& columns, std::string_view name) {
  const auto found = columns.find(name);
  return found == columns.end() ? std::span<const double>() : std::span<const double>(found->second.values);
}

constexpr std::string_view kSimilarityMetrics[] = {"mean_pos", "mean_neg", "margin"};
constexpr std::string_view kPairMetrics[] = {"pearson_cosine",      "pearson_euclidean",   "pearson_manhattan",
                                             "pearson_dot_product", "spearman_cosine",     "spearman_euclidean",
                                             "spearman_manhattan",  "spearman_dot_product"};

std::span<const std::string_view> metrics_of(const config::RunConfig& config) {
  return config.finetuning.embedding_loss == "infonce" ? std::span<const std::string_view>(kSimilarityMetrics) : kPairMetrics;
}

/// The loss reads all vectors of a batch, so every rank computes the same loss, from vectors of a pass before the step.
/// Correlations are only reported for evaluation sets: those of a batch say little.
Sources make_embedding_sources(const SourceContext& context) {
  const EmbeddingOptions options = embedding_options(context.config.finetuning);
  const auto metrics = metrics_of(context.config);
  BatchVectorOptions of_batch{.loss = {}, .metrics = {metrics.begin(), metrics.end()}};
  if (options.loss == "infonce" && options.infonce.mask_duplicates)
    of_batch.columns.emplace(columns::kTokenHashes, IndexSpace::sequence);
  if (options.loss != "infonce") of_batch.columns.emplace(columns::kPairLabel, IndexSpace::item);
  of_batch.evaluation_metrics = [options](const at::Tensor& vectors, std::span<const std::int64_t> item_offsets,
                                          const Columns& columns) {
    return embedding_metrics(options, vectors, item_offsets, numbers_of(columns, columns::kPairLabel),
                             numbers_of(columns, columns::kTokenHashes));
  };
  of_batch.loss = [options, training = context.training](const at::Tensor& vectors, std::span<const std::int64_t> item_offsets,
                                                         const Columns& columns) {
    const auto texts = numbers_of(columns, columns::kTokenHashes);
    BatchLossResult result = embedding_loss(options, vectors, item_offsets, numbers_of(columns, columns::kPairLabel), texts);
    if (training && options.loss == "infonce" && result.metrics.empty())
      result.metrics = embedding_metrics(options, vectors, item_offsets, {}, texts);
    return result;
  };
  Sources sources;
  sources.push_back(std::make_unique<BatchVectors>(context, std::move(of_batch)));
  return sources;
}

constexpr ObjectiveRow kEmbeddingObjective = {
    .name = "embedding",
    .kind = parallel::ObjectiveKind::row_local,
    .make = [](const config::RunConfig& config, const parallel::BatchTotals& totals) -> std::unique_ptr<parallel::Objective> {
      return std::make_unique<BatchVectorObjective>(totals, metrics_of(config));
    },
    .make_sources = make_embedding_sources,
    .scores_first = [](const config::RunConfig&) { return true; },
    .metrics_of_set = true,
    .check_items = check_texts};

}  // namespace

const ObjectiveRow& embedding_objective(const config::RunConfig&) {
  return kEmbeddingObjective;
}

EmbeddingOptions embedding_options(const config::FinetuningArgs& f) {
  EmbeddingOptions options{.loss = f.embedding_loss, .margin = f.contrastive_margin};
  options.infonce = {
      .temperature = f.infonce_temperature,
      .use_batch = f.infonce_use_batch,
      .fake_negative_margin = f.infonce_mask_fake_negative ? std::optional(f.infonce_fake_neg_margin) : std::nullopt,
      .mask_duplicates = f.infonce_mask_duplicates,
      .include_qq = f.infonce_include_qq,
      .include_dd = f.infonce_include_dd};
  for (const auto& [width, weight] : f.mrl_dims.items())
    if (weight.get<double>() > 0) options.widths.emplace_back(std::stoll(width), weight.get<double>());
  return options;
}

void require_widths(const EmbeddingOptions& options, std::int64_t vector_length) {
  for (const auto& [width, weight] : options.widths)
    if (width > vector_length)
      fail_config("mrl_dims has the width {}, but the model's vectors have {} numbers: remove it", width, vector_length);
}

}  // namespace qft::engine
