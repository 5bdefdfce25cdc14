#include "qft/model/transformer.h"

#include "qft/core/error.h"
#include "qft/device/upload.h"
#include "qft/ops/embedding.h"
#include "qft/ops/matmul_choice.h"

#include <algorithm>

#include <fmt/ranges.h>

namespace qft::model {

const InputColumn& InputColumns::at(std::string_view name) const {
  const auto found = columns_.find(name);
  if (found != columns_.end()) return found->second;
  std::vector<std::string_view> names;
  for (const auto& [other, column] : columns_) names.push_back(other);
  fail("a micro-batch lacks the column '{}', which the objective reads; it has {}", name,
       names.empty() ? std::string("none") : fmt::format("{}", fmt::join(names, ", ")));
}

at::Tensor InputColumns::find(std::string_view name) const {
  const auto found = columns_.find(name);
  return found == columns_.end() ? at::Tensor() : found->second.values;
}

MicroInput MicroInput::build(std::span<const std::int32_t> tokens, std::span<const std::int32_t> cu_seqlens,
                             std::span<const std::int32_t> label_positions, std::span<const std::int64_t> samples,
                             c10::Device device, std::span<const std::int32_t> item_offsets,
                             std::span<const std::int32_t> shared) {
  MicroInput in;
  in.sequences = ops::PackedSequences::build(cu_seqlens, device, shared);
  QFT_ASSERT(in.sequences.num_tokens() == static_cast<std::int64_t>(tokens.size()),
             "cu_seqlens end at {}, but there are {} tokens", in.sequences.num_tokens(), tokens.size());
  std::vector<std::int32_t> row_tokens, positions, lengths, rows, targets;
  std::vector<std::int64_t> ids;
  for (std::size_t s = 0; s + 1 < cu_seqlens.size(); ++s)
    for (std::int32_t t = cu_seqlens[s] + (shared.empty() ? 0 : shared[s]); t < cu_seqlens[s + 1]; ++t) {
      row_tokens.push_back(tokens[static_cast<std::size_t>(t)]);
      positions.push_back(t - cu_seqlens[s]);
      lengths.push_back(cu_seqlens[s + 1] - cu_seqlens[s]);
      ids.push_back(samples.empty() ? static_cast<std::int64_t>(s) : samples[s]);
    }
  for (const std::int32_t p : label_positions) {
    const auto s = static_cast<std::size_t>(std::ranges::upper_bound(cu_seqlens, p) - cu_seqlens.begin() - 1);
    const std::int32_t before = shared.empty() ? 0 : shared[s];
    QFT_ASSERT(p - 1 >= cu_seqlens[s] + before, "the label at position {} has no preceding row in its own sequence", p);
    rows.push_back(static_cast<std::int32_t>(in.sequences.shared.row_of(p - 1)));
    targets.push_back(tokens[static_cast<std::size_t>(p)]);
  }
  in.tokens = device::upload(row_tokens, device);
  in.positions = device::upload(positions, device);
  in.labels = {device::upload(rows, device), device::upload(targets, device)};
  in.label_rows = std::move(rows);
  in.identity = {device::upload(ids, device), in.positions};
  in.lengths = device::upload(lengths, device);
  for (const std::int32_t begin : cu_seqlens)
    in.label_offsets.push_back(
        static_cast<std::int32_t>(std::ranges::lower_bound(label_positions, begin) - label_positions.begin()));
  in.item_offsets.assign(item_offsets.begin(), item_offsets.end());
  if (item_offsets.empty())
    for (std::size_t s = 0; s < cu_seqlens.size(); ++s) in.item_offsets.push_back(static_cast<std::int32_t>(s));
  QFT_ASSERT(in.item_offsets.back() == in.sequences.num_sequences(), "items end at {}, but there are {} sequences",
             in.item_offsets.back(), in.sequences.num_sequences());
  return in;
}

void MicroInput::keep_rows_of(const RowSharing& context) {
  if (context.alone()) return;
  const OwnRows own = context.rows_of(sequences.num_rows());
  for (at::Tensor* t : {&tokens, &positions, &lengths}) *t = own.of(*t);
  identity = {own.of(identity.sample_ids), positions};
  first_row = own.first;
}

std::int64_t MicroInput::entries(IndexSpace space) const {
  switch (space) {
    case IndexSpace::token:
      return sequences.num_tokens();
    case IndexSpace::label:
      return labels.size();
    case IndexSpace::sequence:
      return sequences.num_sequences();
    case IndexSpace::item:
      return static_cast<std::int64_t>(item_offsets.size()) - 1;
  }
  return 0;
}

void MicroInput::set_column(std::string_view name, InputColumn column) {
  const std::int64_t size = column.values.defined() ? column.values.size(0) : static_cast<std::int64_t>(column.lists.size());
  constexpr const char* kNames[] = {"tokens", "labels", "sequences", "items"};
  require(size == entries(column.space), "the column '{}' has {} entries, but the micro-batch has {} {}", name, size,
          entries(column.space), kNames[static_cast<std::size_t>(column.space)]);
  columns.set(name, std::move(column));
}

void MicroInput::set_columns(const Columns& host) {
  for (const auto& [name, column] : host) {
    if (column.has_lists())
      set_column(name, {.space = column.space, .lists = column});
    else
      set_column(name, {.space = column.space, .values = device::upload(column.values, tokens.device())});
  }
}

Transformer::Transformer(const ModelSpec& spec, at::ScalarType dtype, c10::Device device, const RowSharing& tensor,
                         const RowSharing& context)
    : spec_(spec), tensor_(tensor), context_(context), dtype_(dtype), norm_(norm_weight(spec.config)), workspace_(device) {
  if (device.is_cpu() && dtype == at::kFloat) ops::choose_fp32_matmul();
  if (!tensor_.alone()) {
    vocabulary_ = {spec.vocabulary.begin,
                   spec.config.vocab_size,
                   tensor_.rank(),
                   tensor_.ranks(),
                   [this](const at::Tensor& t) { tensor_.sum(t); },
                   [this](const at::Tensor& t) { tensor_.max(t); }};
  }
  for (const Layer& layer : spec.layers) {
    Code& code = code_.emplace_back();
    for (const SubLayerSpec& sublayer : layer) code.push_back(make_sublayer(spec.config, sublayer));
  }
}

void Transformer::ensure_positions(std::int64_t length) {
  const auto& dynamic = spec_.config.rope.dynamic;
  const auto capped = [&](std::int64_t rows) { return dynamic ? std::min(rows, dynamic->positions) : rows; };
  if (rope_.cos.defined() && rope_.max_positions() >= capped(length)) return;
  rope_ = ops::RopeTable::build(spec_.config.inverse_frequencies(), capped(std::max<std::int64_t>(length, 256)), dtype_, device(),
                                attention_scaling());
}

std::optional<Angles> Transformer::dynamic_angles(std::span<const TokenRange> sequences, Arena& arena) const {
  const ModelConfig& c = spec_.config;
  const auto length = [](const TokenRange& s) { return s.first + s.count; };
  if (std::ranges::none_of(sequences, [&](const TokenRange& s) { return c.rope.scales_for(length(s)); })) return std::nullopt;
  std::vector<ops::RopeTable::PositionRange> ranges;
  std::int64_t tokens = 0;
  for (const TokenRange& s : sequences) {
    ranges.push_back({c.inverse_frequencies(length(s)), s.first, s.count});
    tokens += s.count;
  }
  const auto room = [&] { return arena.alloc({tokens, c.rotary_dim() / 2}, statistics_dtype()); };
  Angles angles{arena.alloc({tokens}, at::kInt), {room(), room()}};
  at::arange_out(angles.rows, tokens);
  if (device().is_cpu()) {
    ops::RopeTable::write(ranges, dtype_, attention_scaling(), angles.table);
    return angles;
  }
  const ops::RopeTable host = ops::RopeTable::build(ranges, dtype_, at::kCPU, attention_scaling());
  device::upload(host.cos, angles.table.cos);
  device::upload(host.sin, angles.table.sin);
  return angles;
}

std::optional<Angles> Transformer::dynamic_angles(const MicroInput& in, Arena& arena) const {
  if (!spec_.config.rope.scales_for(in.sequences.max_length)) return std::nullopt;
  QFT_ASSERT(!in.sequences.shared.any(), "sequences with up to {} tokens share rows, but rotate them differently",
             in.sequences.max_length);
  const std::vector<std::int32_t>& bounds = in.sequences.cu_seqlens;
  std::vector<TokenRange> sequences;
  for (std::size_t s = 0; s + 1 < bounds.size(); ++s) sequences.push_back({0, bounds[s + 1] - bounds[s]});
  std::optional<Angles> angles = dynamic_angles(sequences, arena);
  angles->rows = angles->rows.narrow(0, in.first_row, in.num_tokens());
  return angles;
}

at::Tensor Transformer::scratch(const char* name, std::int64_t rows, std::int64_t columns) {
  return workspace_.get(name, {rows, columns}, dtype_);
}

void Transformer::embedding_forward(const Weight& table, const MicroInput& in, const at::Tensor& y) {
  if (tensor_.alone()) return ops::embedding_forward(in.tokens, table.value, y);
  const std::int64_t rows = in.num_tokens();
  const at::Tensor partial = room_of_all("partial", rows);
  ops::embedding_forward(in.tokens, table.value, partial.narrow(0, 0, rows), vocabulary_);
  tensor_.reduce_scatter(partial, rows, y);
}

void Transformer::embedding_decode(const Weight& table, const at::Tensor& tokens, const at::Tensor& y) {
  ops::embedding_forward(tokens, table.value, y, vocabulary_);
  tensor_.sum(y);
}

void Transformer::add_noise(const MicroInput& in, const RandomPass& random, const at::Tensor& y) {
  if (random.noise_alpha == 0.0) return;
  const OwnRows own = tensor_.rows_of(in.num_tokens());
  const ops::NoisyRows noisy{{own.of(in.identity.sample_ids), own.of(in.identity.positions)}, own.of(in.lengths)};
  ops::add_embedding_noise(y, ops::noise_key(random.seed, random.step), noisy, random.noise_alpha);
}

void Transformer::embedding_backward(const Weight& table, const MicroInput& in, const at::Tensor& gy) {
  const at::Tensor all = tensor_.alone() ? gy : gathered("gathered", in.num_tokens(), gy);
  ops::embedding_backward(in.tokens, all, table.grad, vocabulary_);
}

}  // namespace qft::model
