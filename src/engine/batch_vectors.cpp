#include "qft/engine/batch_vectors.h"

#include "qft/core/error.h"
#include "qft/device/scalar_type.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

namespace qft::engine {
namespace {

using at::Tensor;

/// Returns the begins of runs with these lengths, and the end.
std::vector<std::int64_t> begins_of(std::span<const std::int64_t> lengths) {
  std::vector<std::int64_t> begins{0};
  for (const std::int64_t length : lengths) begins.push_back(begins.back() + length);
  return begins;
}

/// Returns entries [first, last) of a column of numbers.
Column part_of(const Column& column, std::int64_t first, std::int64_t last) {
  return {column.space, {column.values.begin() + first, column.values.begin() + last}, {}};
}

}  // namespace

Column token_hashes(const loader::MicroBatch& batch) {
  Column column{IndexSpace::sequence, {}, {}};
  for (std::size_t s = 0; s + 1 < batch.cu_seqlens.size(); ++s) {
    std::uint64_t hash = 14695981039346656037U;  // FNV-1a over tokens, with a shift that carries high bits down
    for (std::int32_t t = batch.cu_seqlens[s]; t < batch.cu_seqlens[s + 1]; ++t) {
      hash = (hash ^ static_cast<std::uint32_t>(batch.tokens[static_cast<std::size_t>(t)])) * 1099511628211U;
      hash ^= hash >> 29U;
    }
    column.values.push_back(static_cast<double>(hash >> 11U));  // 53 bits: exact as a double
  }
  return column;
}

BatchVectors::BatchVectors(const SourceContext& context, BatchVectorOptions options)
    : instance_(context.instance), options_(std::move(options)), training_(context.training), config_(context.config) {
  QFT_ASSERT(instance_.spec().head.kind == model::Head::Kind::vector, "the model's head gives no vectors");
}

void BatchVectors::begin(std::int64_t micro_batches) {
  micro_batches_ = micro_batches;
  parts_.clear();
  values_ = gradients_ = Tensor();
}

void BatchVectors::observe(const SourceBatch& batch, const Inputs& inputs) {
  const auto micros = inputs();
  std::vector<Tensor> vectors;
  instance_.executor().evaluate(
      instance_.evaluation_list(static_cast<int>(micros.size()), static_cast<int>(batch.rounds)), micros,
      [&](const parallel::Logprobs& p) {
        vectors.push_back(p.policy.view({-1, instance_.spec().head.values}).to(at::kCPU, p.policy.scalar_type(), false, true));
      },
      /*objective=*/nullptr, training_ ? std::optional(batch.step) : std::nullopt);
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    const loader::MicroBatch& micro = batch.batches[i];
    Part part{vectors[i], {}, {}};
    for (std::size_t k = 1; k < micro.item_offsets.size(); ++k)
      part.item_lengths.push_back(micro.item_offsets[k] - micro.item_offsets[k - 1]);
    for (const auto& [name, space] : options_.columns) {
      if (name == columns::kTokenHashes) {
        part.columns.emplace(name, token_hashes(micro));
        continue;
      }
      const auto column = micro.columns.find(name);
      require(column != micro.columns.end() && column->second.space == space && !column->second.has_lists(),
              "the micro-batch has no numbers '{}' for the loss of the batch", name);
      part.columns.insert(*column);
    }
    parts_.emplace(batch.first + static_cast<std::int64_t>(i), std::move(part));
  }
}

BatchVectors::Whole BatchVectors::gather(comm::Communicator& data) const {
  std::vector<std::int64_t> counts(2 * static_cast<std::size_t>(micro_batches_));  // items of all micro-batches, then sequences
  const auto count_of = [&](std::int64_t micro, int what) -> std::int64_t& {
    return counts[static_cast<std::size_t>(what * micro_batches_ + micro)];
  };
  for (const auto& [micro, part] : parts_) {
    count_of(micro, 0) = std::ssize(part.item_lengths);
    count_of(micro, 1) = part.vectors.size(0);
  }
  data.host().all_reduce(counts.data(), counts.size(), DType::i64);
  const std::span all(counts);
  Whole whole{begins_of(all.first(all.size() / 2)), begins_of(all.subspan(all.size() / 2)), {}, {}, {}};

  // Each rank fills in its places and leaves zeros in the others, so the sums are exact.
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(whole.first_item.back()));
  const auto type = instance_.transformer().statistics_dtype();
  const Tensor vectors = at::zeros({whole.first_sequence.back(), instance_.spec().head.values}, type);
  for (const auto& [micro, part] : parts_) {
    std::ranges::copy(part.item_lengths, lengths.begin() + whole.first_item[static_cast<std::size_t>(micro)]);
    vectors.narrow(0, whole.first_sequence[static_cast<std::size_t>(micro)], part.vectors.size(0)).copy_(part.vectors);
  }
  data.host().all_reduce(lengths.data(), lengths.size(), DType::i64);
  data.host().all_reduce(vectors.data_ptr(), static_cast<std::size_t>(vectors.numel()), device::dtype_of(type));
  whole.item_offsets = begins_of(lengths);
  whole.vectors = vectors.to(at::kDouble);
  gather_columns(data, whole);
  return whole;
}

void BatchVectors::gather_columns(comm::Communicator& data, Whole& whole) const {
  for (const auto& [name, space] : options_.columns) {
    const std::vector<std::int64_t>& begins = space == IndexSpace::item ? whole.first_item : whole.first_sequence;
    Column column{space, std::vector<double>(static_cast<std::size_t>(begins.back())), {}};
    for (const auto& [micro, part] : parts_)
      std::ranges::copy(part.columns.at(name).values, column.values.begin() + begins[static_cast<std::size_t>(micro)]);
    data.host().all_reduce(column.values.data(), column.values.size(), DType::f64);
    whole.columns.emplace(name, std::move(column));
  }
}

void BatchVectors::note_metrics(const std::map<std::string, double>& metrics, std::int64_t first, std::int64_t last) {
  for (const auto& [name, value] : metrics) {
    const auto at = std::ranges::find(options_.metrics, name);
    QFT_ASSERT(at != options_.metrics.end(), "the loss of the batch gives a metric {} that it did not announce", name);
    const std::int64_t column = 1 + 2 * (at - options_.metrics.begin());
    values_.narrow(0, first, last - first).narrow(1, column, 1).fill_(value);
    values_.narrow(0, first, last - first).narrow(1, column + 1, 1).fill_(1.0);
  }
}

void BatchVectors::compute(const Whole& whole, std::int64_t first, std::int64_t last) {
  const auto offset = [&](std::int64_t item) { return whole.item_offsets[static_cast<std::size_t>(item)]; };
  const std::int64_t begin = offset(first), end = offset(last);
  std::vector<std::int64_t> offsets;
  for (std::int64_t item = first; item <= last; ++item) offsets.push_back(offset(item) - begin);
  Columns columns;
  for (const auto& [name, column] : whole.columns)
    columns.emplace(name, column.space == IndexSpace::item ? part_of(column, first, last) : part_of(column, begin, end));
  const BatchLossResult result = options_.loss(whole.vectors.narrow(0, begin, end - begin), offsets, columns);
  values_.narrow(0, first, last - first).narrow(1, 0, 1).fill_(result.loss);
  if (training_ || !options_.evaluation_metrics) note_metrics(result.metrics, first, last);
  if (!training_) return;
  QFT_ASSERT(result.gradient.defined() && result.gradient.sizes() == whole.vectors.sizes(), "a gradient of other vectors");
  gradients_ = result.gradient.to(at::kDouble);
}

void BatchVectors::finish(const parallel::Groups& groups, parallel::BatchTotals&, SourceState*) {
  const Whole whole = gather(groups.data());
  parts_.clear();
  first_item_ = whole.first_item;
  first_sequence_ = whole.first_sequence;
  const std::int64_t items = first_item_.back();
  values_ = at::zeros({items, 1 + 2 * std::ssize(options_.metrics)}, at::kDouble);
  const std::int64_t batch = training_ ? items : loader::loader_options(config_).units_of_step(groups.data().size());
  for (std::int64_t first = 0; first < items; first += batch) compute(whole, first, std::min(items, first + batch));
  if (!training_ && options_.evaluation_metrics && items > 0)
    note_metrics(options_.evaluation_metrics(whole.vectors, whole.item_offsets, whole.columns), 0, items);
}

void BatchVectors::fill(const SourceBatch& batch, std::span<model::MicroInput> micros) {
  const c10::Device device = instance_.transformer().device();
  const auto rows_of = [&](const Tensor& all, const std::vector<std::int64_t>& begins, std::size_t micro) {
    return all.narrow(0, begins[micro], begins[micro + 1] - begins[micro]);
  };
  for (std::size_t i = 0; i < micros.size(); ++i) {
    const auto micro = static_cast<std::size_t>(batch.first) + i;
    micros[i].set_column(columns::kBatchValues,
                         {.space = IndexSpace::item, .values = rows_of(values_, first_item_, micro).to(device)});
    if (!training_) continue;
    const Tensor rows = rows_of(gradients_, first_sequence_, micro).to(instance_.transformer().statistics_dtype());
    micros[i].set_column(columns::kVectorGradients, {.space = IndexSpace::sequence, .values = rows.to(device)});
  }
}

void BatchVectorObjective::known_gradient(const model::MicroInput& in, const Tensor& grad) const {
  grad.copy_(in.columns.at(columns::kVectorGradients).values.reshape({-1}));
}

Tensor BatchVectorObjective::observe(const model::MicroInput& in, const parallel::Logprobs&, const Tensor&) const {
  return in.columns.at(columns::kBatchValues).values.sum(0);
}

}  // namespace qft::engine
