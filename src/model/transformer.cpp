#include "qft/model/transformer.h"

#include "qft/core/error.h"
#include "qft/device/upload.h"
#include "qft/ops/embedding.h"
#include "qft/ops/matmul_choice.h"
#include "qft/ops/norm.h"
#include "qft/ops/value_head.h"

#include <algorithm>
#include <numeric>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <fmt/ranges.h>

namespace qft::model {
namespace {

/// Returns each sequence's last row.
std::vector<std::int32_t> last_rows(const ops::PackedSequences& sequences) {
  std::vector<std::int32_t> rows;
  for (const std::int32_t end : std::span(sequences.cu_seqlens).subspan(1))
    rows.push_back(static_cast<std::int32_t>(sequences.shared.row_of(end - 1)));
  return rows;
}

/// Returns the numbers of all rows: int32 [rows].
at::Tensor all_rows(const at::Tensor& rows) {
  return at::arange(rows.size(0), rows.options().dtype(at::kInt));
}

}  // namespace

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

Transformer::Transformer(const ModelSpec& spec, at::ScalarType dtype, c10::Device device, const RowSharing& sharing)
    : spec_(spec), sharing_(sharing), dtype_(dtype), norm_(norm_weight(spec.config)), workspace_(device) {
  if (device.is_cpu() && dtype == at::kFloat) ops::choose_fp32_matmul();
  if (!sharing_.alone()) {
    vocabulary_ = {spec.vocabulary.begin,
                   spec.config.vocab_size,
                   sharing_.rank(),
                   sharing_.ranks(),
                   [this](const at::Tensor& t) { sharing_.add(t); },
                   [this](const at::Tensor& t) { sharing_.maximum(t); }};
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
  return dynamic_angles(sequences, arena);
}

at::Tensor Transformer::scratch(const char* name, std::int64_t rows, std::int64_t columns) {
  return workspace_.get(name, {rows, columns}, dtype_);
}

void Transformer::embedding_forward(const Weight& table, const MicroInput& in, const at::Tensor& y) {
  if (sharing_.alone()) return ops::embedding_forward(in.tokens, table.value, y);
  const std::int64_t rows = in.num_tokens();
  const at::Tensor partial = room_of_all("partial", rows);
  ops::embedding_forward(in.tokens, table.value, partial.narrow(0, 0, rows), vocabulary_);
  sharing_.add_and_deal(partial, rows, y);
}

void Transformer::embedding_decode(const Weight& table, const at::Tensor& tokens, const at::Tensor& y) {
  ops::embedding_forward(tokens, table.value, y, vocabulary_);
  sharing_.add(y);
}

void Transformer::add_noise(const MicroInput& in, const RandomPass& random, const at::Tensor& y) {
  if (random.noise_alpha == 0.0) return;
  const OwnRows own = sharing_.deal(in.num_tokens());
  const ops::NoisyRows noisy{{own.of(in.identity.sample_ids), own.of(in.identity.positions)}, own.of(in.lengths)};
  ops::add_embedding_noise(y, ops::noise_key(random.seed, random.step), noisy, random.noise_alpha);
}

void Transformer::embedding_backward(const Weight& table, const MicroInput& in, const at::Tensor& gy) {
  const at::Tensor all = sharing_.alone() ? gy : collected("collected", in.num_tokens(), gy);
  ops::embedding_backward(in.tokens, all, table.grad, vocabulary_);
}

std::int64_t Transformer::head_values(const MicroInput& in) const {
  return spec_.head.of_sequences() ? in.sequences.num_sequences() * spec_.head.values : in.labels.size();
}

Transformer::HeadRows Transformer::rows_of_head(const MicroInput& in) const {
  const std::vector<std::int32_t> numbers = spec_.head.of_sequences() ? last_rows(in.sequences) : in.label_rows;
  HeadRows rows{sharing_.counts_of(numbers, in.num_tokens())};
  for (int r = 0; r < sharing_.rank(); ++r) rows.first += rows.counts[static_cast<std::size_t>(r)];
  rows.count = rows.counts[static_cast<std::size_t>(sharing_.rank())];
  std::vector<std::int64_t> here;
  for (std::int64_t i = rows.first; i < rows.first + rows.count; ++i)
    here.push_back(numbers[static_cast<std::size_t>(i)] - sharing_.deal(in.num_tokens()).first);
  rows.here = device::upload(here, device());
  return rows;
}

at::Tensor Transformer::head_input(const HeadWeights& head, const at::Tensor& x, at::Tensor& rstd) {
  const at::Tensor y = scratch("norm", x.size(0), x.size(1));
  rstd = workspace_.get("head.rstd", {x.size(0)}, statistics_dtype());
  ops::rms_norm_forward(x, head.norm.value, spec_.config.rms_norm_eps, y, rstd, norm_);
  return y;
}

at::Tensor Transformer::of_all_ranks(const HeadRows& rows, const at::Tensor& y) {
  if (sharing_.alone()) return y;
  const at::Tensor all =
      scratch("collected", std::accumulate(rows.counts.begin(), rows.counts.end(), std::int64_t{0}), y.size(1));
  sharing_.collect(y, rows.counts, all);
  return all;
}

void Transformer::head_input_backward(const HeadWeights& head, const HeadRows& rows, const at::Tensor& x, const at::Tensor& rstd,
                                      const at::Tensor& gy, const at::Tensor& g) {
  ops::rms_norm_backward(
      {.gy = gy, .x = x, .weight = head.norm.value, .rstd = rstd, .gx = gy, .gweight = head.norm.grad, .form = norm_},
      workspace_);
  g.zero_();
  g.index_copy_(0, rows.here, gy);
}

void Transformer::head_forward(const HeadWeights& head, const MicroInput& in, const at::Tensor& x, const at::Tensor& values,
                               const ops::LogitsReader& reader) {
  at::Tensor rstd;
  if (spec_.head.of_sequences()) {
    const HeadRows rows = rows_of_head(in);
    return sequence_values(head, rows, head_input(head, x.index_select(0, rows.here), rstd), values);
  }
  if (sharing_.alone())
    return ops::head_forward(head_input(head, x, rstd), head.table.value, in.labels, values, workspace_, head_rows_, reader);
  const HeadRows rows = rows_of_head(in);
  const at::Tensor all = of_all_ranks(rows, head_input(head, x.index_select(0, rows.here), rstd));
  ops::head_forward(all, head.table.value, {all_rows(all), in.labels.targets}, values, workspace_, head_rows_, reader,
                    vocabulary_);
}

void Transformer::head_forward_backward(const HeadWeights& head, const MicroInput& in, const at::Tensor& x,
                                        const at::Tensor& grad_values, const at::Tensor& values, const at::Tensor& g,
                                        const ops::LogitsReader& reader) {
  at::Tensor rstd;
  if (spec_.head.of_sequences() || !sharing_.alone()) {
    const HeadRows rows = rows_of_head(in);
    const at::Tensor own = x.index_select(0, rows.here), y = head_input(head, own, rstd), gy = at::empty_like(own);
    if (spec_.head.of_sequences()) {
      if (values.defined()) sequence_values(head, rows, y, values);
      sequence_gradients(head, rows, y, grad_values, gy);
    } else {
      const at::Tensor all = of_all_ranks(rows, y), gall = scratch("partial", all.size(0), all.size(1));
      ops::head_forward_backward({.x = all,
                                  .weight = head.table.value,
                                  .labels = {all_rows(all), in.labels.targets},
                                  .grad_logprobs = grad_values,
                                  .logprobs = values,
                                  .gx = gall,
                                  .gweight = head.table.grad,
                                  .vocabulary = vocabulary_},
                                 workspace_, head_rows_, reader);
      sharing_.add_and_deal(gall, rows.counts, gy);
    }
    return head_input_backward(head, rows, own, rstd, gy, g);
  }
  const at::Tensor y = head_input(head, x, rstd);
  ops::head_forward_backward({.x = y,
                              .weight = head.table.value,
                              .labels = in.labels,
                              .grad_logprobs = grad_values,
                              .logprobs = values,
                              .gx = g,
                              .gweight = head.table.grad},
                             workspace_, head_rows_, reader);
  ops::rms_norm_backward(
      {.gy = g, .x = x, .weight = head.norm.value, .rstd = rstd, .gx = g, .gweight = head.norm.grad, .form = norm_}, workspace_);
}

void Transformer::sequence_values(const HeadWeights& head, const HeadRows& rows, const at::Tensor& y, const at::Tensor& values) {
  const Head& kind = spec_.head;
  if (!sharing_.alone()) values.zero_();
  const at::Tensor own = rows.of(values, kind.values);
  if (kind.kind == Head::Kind::vector)
    ops::vector_head_forward(y, own);
  else if (kind.kind == Head::Kind::token_difference)
    ops::token_difference_forward(y, head.table.value, {kind.minuend, kind.subtrahend}, own, vocabulary_);
  else
    ops::value_head_forward(y, head.table.value, head.bias.value, own);
  sharing_.add(values);
}

void Transformer::sequence_gradients(const HeadWeights& head, const HeadRows& rows, const at::Tensor& y,
                                     const at::Tensor& grad_values, const at::Tensor& gy) {
  const Head& kind = spec_.head;
  const at::Tensor own = rows.of(grad_values, kind.values);
  if (kind.kind == Head::Kind::vector) return ops::vector_head_backward(y, own, gy);
  if (kind.kind == Head::Kind::token_difference)
    return ops::token_difference_backward(y, head.table.value, {kind.minuend, kind.subtrahend}, own, gy, head.table.grad,
                                          vocabulary_);
  ops::value_head_backward(y, head.table.value, own, gy, head.table.grad, head.bias.grad);
}

void Transformer::head_rows(const HeadWeights& head, const MicroInput& in, const at::Tensor& x, const at::Tensor& rows) {
  at::Tensor rstd;
  if (sharing_.alone()) return void(rows.copy_(head_input(head, x, rstd).index_select(0, in.labels.rows)));
  const HeadRows here = rows_of_head(in);
  sharing_.collect(head_input(head, x.index_select(0, here.here), rstd), here.counts, rows);
}

at::Tensor Transformer::logits(const Weight& norm, const Weight& table, const at::Tensor& x_rows) {
  const at::Tensor y = scratch("norm", x_rows.size(0), x_rows.size(1));
  const at::Tensor rstd = workspace_.get("head.rstd", {x_rows.size(0)}, statistics_dtype());
  ops::rms_norm_forward(x_rows, norm.value, spec_.config.rms_norm_eps, y, rstd, norm_);
  const at::Tensor logits = workspace_.get("head.logits", {y.size(0), vocabulary_.tokens(table.value.size(0))}, y.scalar_type());
  ops::head_logits(y, table.value, logits, workspace_, vocabulary_);
  return logits;
}

}  // namespace qft::model
