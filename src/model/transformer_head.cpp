// A model's head: log-probabilities of labels, values of sequences, logits. Ranks may share its rows and the vocabulary.
#include "qft/device/upload.h"
#include "qft/model/transformer.h"
#include "qft/ops/norm.h"
#include "qft/ops/value_head.h"

#include <algorithm>
#include <span>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>

namespace qft::model {
namespace {

/// Returns each sequence's last row.
std::vector<std::int32_t> last_rows(const ops::PackedSequences& sequences) {
  std::vector<std::int32_t> rows;
  for (const std::int32_t end : std::span(sequences.cu_seqlens).subspan(1))
    rows.push_back(static_cast<std::int32_t>(sequences.shared.row_of(end - 1)));
  return rows;
}

/// Returns the values of some labels; undefined if `all` is.
at::Tensor of(const at::Tensor& all, const Extent& labels) {
  return all.defined() ? all.narrow(0, labels.begin, labels.count) : all;
}

/// Returns a reader for `labels` alone. It passes each chunk to `all`, with the chunk's numbers in the whole micro-batch.
ops::LogitsReader reader_of(const ops::LogitsReader& all, const Extent& labels) {
  ops::LogitsReader some = all;
  if (all.reference.defined()) some.reference = all.reference.narrow(0, labels.begin, labels.count);
  if (all.read)
    some.read = [&all, labels](const ops::HeadChunk& chunk) {
      ops::HeadChunk moved = chunk;
      moved.first += labels.begin;
      return all.read(moved);
    };
  return some;
}

/// Returns the numbers of all rows: int32 [rows].
at::Tensor all_rows(const at::Tensor& rows) {
  return at::arange(rows.size(0), rows.options().dtype(at::kInt));
}

}  // namespace

std::int64_t Transformer::head_values(const MicroInput& in) const {
  return spec_.head.of_sequences() ? in.sequences.num_sequences() * spec_.head.values : in.labels.size();
}

Transformer::HeadRows Transformer::rows_of_head(const MicroInput& in) const {
  const std::vector<std::int32_t> all = spec_.head.of_sequences() ? last_rows(in.sequences) : in.label_rows;
  const auto place_of = [&](std::int64_t row) { return std::ranges::lower_bound(all, row) - all.begin(); };
  HeadRows rows;
  rows.of_context = {place_of(in.first_row), place_of(in.first_row + in.num_tokens()) - place_of(in.first_row)};
  std::vector<std::int32_t> numbers;  // of the rows that the tensor ranks share
  for (std::int64_t i = rows.of_context.begin; i < rows.of_context.end(); ++i)
    numbers.push_back(static_cast<std::int32_t>(all[static_cast<std::size_t>(i)] - in.first_row));
  rows.counts = tensor_.counts_of(numbers, in.num_tokens());
  std::int64_t first = 0;
  for (int r = 0; r < tensor_.rank(); ++r) first += rows.counts[static_cast<std::size_t>(r)];
  rows.first = rows.of_context.begin + first;
  rows.count = rows.counts[static_cast<std::size_t>(tensor_.rank())];
  std::vector<std::int64_t> here;
  for (std::int64_t i = first; i < first + rows.count; ++i)
    here.push_back(numbers[static_cast<std::size_t>(i)] - tensor_.rows_of(in.num_tokens()).first);
  rows.here = device::upload(here, device());
  return rows;
}

at::Tensor Transformer::head_input(const HeadWeights& head, const at::Tensor& x, at::Tensor& rstd) {
  const at::Tensor y = scratch("norm", x.size(0), x.size(1));
  rstd = workspace_.get("head.rstd", {x.size(0)}, statistics_dtype());
  ops::rms_norm_forward(x, head.norm.value, spec_.config.rms_norm_eps, y, rstd, norm_);
  return y;
}

at::Tensor Transformer::gathered_rows(const HeadRows& rows, const at::Tensor& y) {
  if (tensor_.alone()) return y;
  const at::Tensor all = scratch("gathered", rows.of_context.count, y.size(1));
  tensor_.all_gather(y, rows.counts, all);
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
  if (alone())
    return ops::head_forward(head_input(head, x, rstd), head.table.value, in.labels, values, workspace_, head_rows_, reader);
  const HeadRows rows = rows_of_head(in);
  const at::Tensor all = gathered_rows(rows, head_input(head, x.index_select(0, rows.here), rstd));
  values.zero_();
  ops::head_forward(all, head.table.value, {all_rows(all), of(in.labels.targets, rows.of_context)}, of(values, rows.of_context),
                    workspace_, head_rows_, reader_of(reader, rows.of_context), vocabulary_);
  context_.sum(values);
}

void Transformer::head_forward_backward(const HeadWeights& head, const MicroInput& in, const at::Tensor& x,
                                        const at::Tensor& grad_values, const at::Tensor& values, const at::Tensor& g,
                                        const ops::LogitsReader& reader) {
  at::Tensor rstd;
  if (spec_.head.of_sequences() || !alone()) {
    const HeadRows rows = rows_of_head(in);
    const at::Tensor own = x.index_select(0, rows.here), y = head_input(head, own, rstd), gy = at::empty_like(own);
    if (spec_.head.of_sequences()) {
      if (values.defined()) sequence_values(head, rows, y, values);
      sequence_gradients(head, rows, y, grad_values, gy);
    } else {
      if (values.defined()) values.zero_();
      const at::Tensor all = gathered_rows(rows, y), gall = scratch("partial", all.size(0), all.size(1));
      ops::head_forward_backward({.x = all,
                                  .weight = head.table.value,
                                  .labels = {all_rows(all), of(in.labels.targets, rows.of_context)},
                                  .grad_logprobs = of(grad_values, rows.of_context),
                                  .logprobs = of(values, rows.of_context),
                                  .gx = gall,
                                  .gweight = head.table.grad,
                                  .vocabulary = vocabulary_},
                                 workspace_, head_rows_, reader_of(reader, rows.of_context));
      tensor_.reduce_scatter(gall, rows.counts, gy);
      if (values.defined()) context_.sum(values);
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
  if (!alone()) values.zero_();
  const at::Tensor own = rows.of(values, kind.values);
  if (kind.kind == Head::Kind::vector)
    ops::vector_head_forward(y, own);
  else if (kind.kind == Head::Kind::token_difference)
    ops::token_difference_forward(y, head.table.value, {kind.minuend, kind.subtrahend}, own, vocabulary_);
  else
    ops::value_head_forward(y, head.table.value, head.bias.value, own);
  tensor_.sum(values);
  context_.sum(values);
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
  if (alone()) return void(rows.copy_(head_input(head, x, rstd).index_select(0, in.labels.rows)));
  const HeadRows here = rows_of_head(in);
  const at::Tensor of_context = context_.alone() ? rows : scratch("gathered", here.of_context.count, rows.size(1));
  tensor_.all_gather(head_input(head, x.index_select(0, here.here), rstd), here.counts, of_context);
  context_.all_gather(of_context, context_.counts_of(in.label_rows, in.sequences.num_rows()), rows);
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
