#include "qft/core/error.h"

#include <cmath>
#include <limits>

#include "embedding.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>

namespace qft::engine {
namespace {

using at::Tensor;

constexpr double kNever = -std::numeric_limits<double>::infinity();
constexpr std::int64_t kAnchorBlock = 1024;  ///< anchors whose similarities exist at once

struct LossAndGradient {
  double loss = 0.0;
  Tensor gradient;
};

/// Vectors of length 1. As torch's normalize, which divides by at least 1e-12.
struct UnitVectors {
  explicit UnitVectors(const Tensor& vectors)
      : norms(vectors.norm(2, {1}, /*keepdim=*/true).clamp_min(1e-12)), values(vectors / norms) {}
  /// Returns the gradient of the original vectors.
  Tensor backward(const Tensor& grad) const { return (grad - values * (grad * values).sum(1, true)) / norms; }

  Tensor norms, values;
};

/// The rows of a batch: indices of vectors, or of documents.
struct Rows {
  Tensor anchors, documents;  ///< [I], [M] vectors
  Tensor positives;           ///< [I] index of each item's positive among the documents
  Tensor items;               ///< [M] item of each document
};

Rows rows_of(std::span<const std::int64_t> offsets, const Tensor& like) {
  std::vector<std::int64_t> anchors, documents, positives, items;
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
    const std::int64_t first = offsets[i], own = offsets[i + 1] - first - 2;
    require(own >= 0, "item {} of the batch has {} texts: an anchor and a positive are needed", i, own + 2);
    anchors.push_back(first);
    positives.push_back(std::ssize(documents));
    documents.push_back(first + 1);
    for (std::int64_t n = 0; n < own; ++n) documents.push_back(first + 2 + n);
    items.resize(documents.size(), static_cast<std::int64_t>(i));
  }
  const auto on_device = [&](const std::vector<std::int64_t>& v) { return at::tensor(v, like.options().dtype(at::kLong)); };
  return {on_device(anchors), on_device(documents), on_device(positives), on_device(items)};
}

/// InfoNCE of unit vectors, in blocks of anchors.
class InfoNce {
 public:
  /// `texts` [S]: equal for equal texts; empty: no duplicates are left out.
  InfoNce(const InfoNceOptions& options, const Tensor& unit, std::span<const std::int64_t> offsets, std::span<const double> texts)
      : options_(options),
        unit_(unit),
        rows_(rows_of(offsets, unit)),
        anchors_(unit.index_select(0, rows_.anchors)),
        documents_(unit.index_select(0, rows_.documents)),
        positives_(documents_.index_select(0, rows_.positives)) {
    if (!options.mask_duplicates || texts.empty()) return;
    require(std::ssize(texts) == unit.size(0), "the batch has {} vectors, but {} texts", unit.size(0), texts.size());
    texts_ = at::tensor(std::vector<double>(texts.begin(), texts.end()), unit.options()).index_select(0, rows_.documents);
  }

  LossAndGradient run();
  /// Returns the metrics of the blocks that run() has seen; before run(), computes them.
  std::map<std::string, double> metrics();

 private:
  /// Similarities of some anchors with the documents; kNever for documents of other items without use_batch.
  struct Block {
    std::int64_t begin, count;
    Tensor own;        ///< [b, 1] index of the positive
    Tensor documents;  ///< [b, M]
    Tensor positive;   ///< [b]
  };
  std::int64_t size() const { return anchors_.size(0); }
  Block block(std::int64_t begin) const;
  /// Sets similarities [b, M] to kNever for the other documents that have the positive's text.
  void leave_out_duplicates(const Tensor& own, Tensor& similarities) const;
  double add_block(const Block& block);
  void note_similarities(const Block& block);

  const InfoNceOptions& options_;
  const Tensor& unit_;
  Rows rows_;
  Tensor anchors_, documents_, positives_;
  Tensor texts_;  ///< [M] hashes of the documents; undefined: duplicates count
  Tensor grad_anchors_, grad_documents_, grad_positives_;

  /// Sums over the anchors seen so far, for the metrics.
  struct {
    double positive = 0.0, negative = 0.0, negatives = 0.0, lead = 0.0, leads = 0.0;
    std::int64_t anchors = 0;
  } seen_;
};

void InfoNce::leave_out_duplicates(const Tensor& own, Tensor& similarities) const {
  if (!texts_.defined()) return;
  const Tensor same = texts_.unsqueeze(0).eq(texts_.index_select(0, own.squeeze(1)).unsqueeze(1));
  similarities.masked_fill_(same.scatter_(1, own, 0), kNever);
}

InfoNce::Block InfoNce::block(std::int64_t begin) const {
  Block b{begin, std::min(kAnchorBlock, size() - begin), {}, {}, {}};
  b.own = rows_.positives.narrow(0, begin, b.count).unsqueeze(1);
  b.documents = anchors_.narrow(0, begin, b.count).mm(documents_.t());
  b.positive = b.documents.gather(1, b.own).squeeze(1);
  leave_out_duplicates(b.own, b.documents);
  if (options_.use_batch) return b;
  const Tensor items = at::arange(begin, begin + b.count, rows_.items.options()).unsqueeze(1);
  b.documents.masked_fill_(rows_.items.unsqueeze(0).ne(items), kNever);
  return b;
}

/// Adds a block's gradients. Returns the sum of its anchors' losses.
double InfoNce::add_block(const Block& b) {
  const Tensor anchors = anchors_.narrow(0, b.begin, b.count), positives = positives_.narrow(0, b.begin, b.count);
  const bool qq = options_.use_batch && options_.include_qq, dd = options_.use_batch && options_.include_dd;
  std::vector<Tensor> parts = {b.documents};
  if (qq) parts.push_back(anchors.mm(anchors_.t()));
  if (options_.use_batch && options_.fake_negative_margin) {
    const Tensor bound = (b.positive + *options_.fake_negative_margin).unsqueeze(1);
    for (Tensor& part : parts) part = part.masked_fill(part.gt(bound), kNever);
  }
  if (qq) parts[1].diagonal(b.begin).fill_(kNever);  // the anchor itself
  if (dd) {
    Tensor others = positives.mm(documents_.t()).scatter_(1, b.own, kNever);
    leave_out_duplicates(b.own, others);
    parts.push_back(others);
  }
  const Tensor logits = at::cat(parts, 1) / options_.temperature, sums = at::logsumexp(logits, {1});
  const double scale = 1.0 / (options_.temperature * static_cast<double>(size()));
  const Tensor weights = at::exp(logits - sums.unsqueeze(1)) * scale;

  std::int64_t column = 0;
  const auto next = [&](std::int64_t width) { return weights.narrow(1, std::exchange(column, column + width), width); };
  Tensor grad_anchors = grad_anchors_.narrow(0, b.begin, b.count);
  const Tensor by_documents = next(documents_.size(0)).scatter_add(1, b.own, at::full_like(b.own, -scale, at::kDouble));
  grad_anchors.add_(by_documents.mm(documents_));
  grad_documents_.add_(by_documents.t().mm(anchors));
  if (qq) {
    const Tensor by_anchors = next(size());
    grad_anchors.add_(by_anchors.mm(anchors_));
    grad_anchors_.add_(by_anchors.t().mm(anchors));
  }
  if (dd) {
    const Tensor by_positives = next(documents_.size(0));
    grad_positives_.narrow(0, b.begin, b.count).add_(by_positives.mm(documents_));
    grad_documents_.add_(by_positives.t().mm(positives));
  }
  return (sums - b.positive / options_.temperature).sum().item<double>();
}

LossAndGradient InfoNce::run() {
  grad_anchors_ = at::zeros_like(anchors_);
  grad_documents_ = at::zeros_like(documents_);
  grad_positives_ = at::zeros_like(positives_);
  double sum = 0.0;
  for (std::int64_t begin = 0; begin < size(); begin += kAnchorBlock) {
    const Block b = block(begin);
    note_similarities(b);
    sum += add_block(b);
  }
  grad_documents_.index_add_(0, rows_.positives, grad_positives_);
  Tensor gradient = at::zeros_like(unit_);
  gradient.index_add_(0, rows_.anchors, grad_anchors_).index_add_(0, rows_.documents, grad_documents_);
  return {sum / static_cast<double>(size()), gradient};
}

void InfoNce::note_similarities(const Block& b) {
  const Tensor others = b.documents.scatter(1, b.own, kNever), exists = others.ne(kNever), any = exists.any(1);
  seen_.positive += b.positive.sum().item<double>();
  seen_.negative += others.masked_fill(exists.logical_not(), 0.0).sum().item<double>();
  seen_.negatives += exists.sum().item<double>();
  seen_.lead += (b.positive - others.amax({1})).masked_fill(any.logical_not(), 0.0).sum().item<double>();
  seen_.leads += any.sum().item<double>();
  seen_.anchors += b.count;
}

std::map<std::string, double> InfoNce::metrics() {
  while (seen_.anchors < size()) note_similarities(block(seen_.anchors));
  std::map<std::string, double> all = {{"mean_pos", seen_.positive / static_cast<double>(size())}};
  if (seen_.negatives > 0) all["mean_neg"] = seen_.negative / seen_.negatives, all["margin"] = seen_.lead / seen_.leads;
  return all;
}

/// The vectors of pairs.
struct Pairs {
  Tensor first, second;  ///< [I, D]
  Rows rows;
  Pairs(const Tensor& vectors, std::span<const std::int64_t> offsets) : rows(rows_of(offsets, vectors)) {
    require(2 * rows.anchors.size(0) == vectors.size(0),
            "the pair losses take items of two texts, but the batch has {} for {} items", vectors.size(0), rows.anchors.size(0));
    first = vectors.index_select(0, rows.anchors);
    second = vectors.index_select(0, rows.documents);
  }
};

/// A loss of the cosine similarities s [I], with d(loss) / ds.
struct PairTerms {
  Tensor loss, by_similarity;  ///< scalar, [I]
};

PairTerms squared_cosine_error(const Tensor& s, const Tensor& y) {
  const auto n = static_cast<double>(s.numel());
  return {(s - y).square().mean(), (s - y) * (2.0 / n)};
}

/// Squares of distances 1 - s for label 1, and of the distances that are lacking to the margin for label 0; weighed by `weight`.
PairTerms contrastive_terms(const Tensor& s, const Tensor& y, double margin, const Tensor& weight) {
  const Tensor distance = 1.0 - s, lacking = (margin - distance).clamp_min(0.0), far = 1.0 - y;
  return {(weight * (y * distance.square() + far * lacking.square())).sum(), weight * (far * lacking - y * distance) * 2.0};
}

/// 1 for hard pairs, else 0. A kind without pairs gives no bound; the mean of the other kind's distances takes its place.
Tensor hard_pairs(const Tensor& s, const Tensor& y) {
  const Tensor distance = 1.0 - s, is_near = y.eq(1.0), is_far = y.eq(0.0);
  const Tensor near = distance.masked_select(is_near), far = distance.masked_select(is_far);
  Tensor hard = at::zeros_like(s);
  if (far.numel() > 0) hard.masked_fill_(is_far.logical_and(distance.lt(near.numel() > 0 ? near.max() : far.mean())), 1.0);
  if (near.numel() > 0) hard.masked_fill_(is_near.logical_and(distance.gt(far.numel() > 0 ? far.min() : near.mean())), 1.0);
  return hard;
}

LossAndGradient pair_loss(const EmbeddingOptions& options, const Tensor& unit, std::span<const std::int64_t> offsets,
                          const Tensor& y) {
  const Pairs pairs(unit, offsets);
  const Tensor s = (pairs.first * pairs.second).sum(1);
  PairTerms terms;
  if (options.loss == "cosine_similarity")
    terms = squared_cosine_error(s, y);
  else if (options.loss == "contrastive")
    terms = contrastive_terms(s, y, options.margin, at::full_like(s, 0.5 / static_cast<double>(s.numel())));
  else if (options.loss == "online_contrastive")
    terms = contrastive_terms(s, y, options.margin, hard_pairs(s, y));
  else
    fail("there is no embedding_loss '{}'", options.loss);
  const Tensor by_similarity = terms.by_similarity.unsqueeze(1);
  Tensor gradient = at::zeros_like(unit);
  gradient.index_add_(0, pairs.rows.anchors, by_similarity * pairs.second);
  gradient.index_add_(0, pairs.rows.documents, by_similarity * pairs.first);
  return {terms.loss.item<double>(), gradient};
}

Tensor labels_like(std::span<const double> labels, const Tensor& vectors, std::size_t items) {
  require(labels.size() == items, "the batch has {} pairs, but {} labels", items, labels.size());
  return at::tensor(std::vector<double>(labels.begin(), labels.end()), vectors.options().dtype(at::kDouble));
}

/// Ranks from 1; equal values share the mean of their ranks.
Tensor ranks_of(const Tensor& values) {
  const auto [sorted, order] = values.sort();
  const auto n = values.numel();
  const Tensor on_host = sorted.cpu();
  const std::span v(on_host.const_data_ptr<double>(), static_cast<std::size_t>(n));
  std::vector<double> ranks(v.size());
  for (std::size_t begin = 0, end = 0; begin < v.size(); begin = end) {
    while (end < v.size() && v[end] == v[begin]) ++end;
    std::fill(ranks.begin() + static_cast<std::ptrdiff_t>(begin), ranks.begin() + static_cast<std::ptrdiff_t>(end),
              static_cast<double>(begin + end + 1) / 2.0);
  }
  return at::zeros_like(values).scatter_(0, order, at::tensor(ranks, values.options()));
}

double correlation(Tensor a, Tensor b) {
  a = a - a.mean(), b = b - b.mean();
  return ((a * b).sum() / (a.norm() * b.norm())).item<double>();
}

std::map<std::string, double> pair_metrics(const Tensor& unit, std::span<const std::int64_t> offsets, const Tensor& y) {
  const Pairs pairs(unit, offsets);
  const Tensor difference = pairs.first - pairs.second, product = (pairs.first * pairs.second).sum(1), label_ranks = ranks_of(y);
  const std::pair<const char*, Tensor> measures[] = {{"cosine", product},
                                                     {"euclidean", difference.norm(2, {1}).neg()},
                                                     {"manhattan", difference.abs().sum(1).neg()},
                                                     {"dot_product", product}};
  std::map<std::string, double> all;
  for (const auto& [name, measure] : measures) {
    all[std::string("pearson_") + name] = correlation(y, measure);
    all[std::string("spearman_") + name] = correlation(label_ranks, ranks_of(measure));
  }
  std::erase_if(all, [](const auto& metric) { return !std::isfinite(metric.second); });  // one pair, or equal labels
  return all;
}

}  // namespace

BatchLossResult embedding_loss(const EmbeddingOptions& options, const Tensor& vectors, std::span<const std::int64_t> item_offsets,
                               std::span<const double> labels, std::span<const double> texts) {
  const Tensor x = vectors.to(at::kDouble);
  const bool of_pairs = options.loss != "infonce";
  const Tensor y = of_pairs ? labels_like(labels, x, item_offsets.size() - 1) : Tensor();
  require_widths(options, x.size(1));
  auto widths = options.widths;
  if (widths.empty()) widths.emplace_back(x.size(1), 1.0);
  BatchLossResult result{.loss = 0.0, .metrics = {}, .gradient = at::zeros_like(x)};
  for (const auto& [width, weight] : widths) {
    const UnitVectors unit(x.narrow(1, 0, width));
    LossAndGradient part;
    if (of_pairs) {
      part = pair_loss(options, unit.values, item_offsets, y);
    } else {
      InfoNce infonce(options.infonce, unit.values, item_offsets, texts);
      part = infonce.run();
      if (width == x.size(1)) result.metrics = infonce.metrics();
    }
    result.loss += weight * part.loss;
    result.gradient.narrow(1, 0, width).add_(unit.backward(part.gradient), weight);
  }
  return result;
}

std::map<std::string, double> embedding_metrics(const EmbeddingOptions& options, const Tensor& vectors,
                                                std::span<const std::int64_t> item_offsets, std::span<const double> labels,
                                                std::span<const double> texts) {
  const UnitVectors unit(vectors.to(at::kDouble));
  if (options.loss == "infonce") return InfoNce(options.infonce, unit.values, item_offsets, texts).metrics();
  return pair_metrics(unit.values, item_offsets, labels_like(labels, unit.values, item_offsets.size() - 1));
}

}  // namespace qft::engine
