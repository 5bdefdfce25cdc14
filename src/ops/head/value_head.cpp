#include "qft/ops/value_head.h"

#include "qft/core/error.h"

#include <optional>

#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros_like.h>

namespace qft::ops {
namespace {

constexpr double kSmallestNorm = 1e-12;

/// Returns the row of a token in a table, if this rank has it.
std::optional<std::int64_t> row_of(std::int32_t token, const at::Tensor& table, const VocabularyPart& vocabulary) {
  const std::int64_t row = token - vocabulary.first, known = vocabulary.tokens(table.size(0));
  QFT_ASSERT(token >= 0 && token < known, "token {} is outside the vocabulary of {}", token, known);
  return row >= 0 && row < table.size(0) ? std::optional(row) : std::nullopt;
}

/// Returns the lengths of the rows, at least kSmallestNorm: [S, 1].
at::Tensor lengths_of(const at::Tensor& rows) {
  return at::linalg_vector_norm(rows, 2, at::IntArrayRef{1}, /*keepdim=*/true).clamp_min_(kSmallestNorm);
}

/// Returns the weight of the score: [1, D] in the score's type.
at::Tensor difference_of(const at::Tensor& table, const TokenPair& tokens, at::ScalarType type,
                         const VocabularyPart& vocabulary) {
  if (!vocabulary.shared())
    return (table.select(0, tokens.minuend).to(type) - table.select(0, tokens.subtrahend).to(type)).unsqueeze(0);
  at::Tensor difference = at::zeros({1, table.size(1)}, table.options().dtype(type));
  if (const auto row = row_of(tokens.minuend, table, vocabulary)) difference.add_(table.select(0, *row));
  if (const auto row = row_of(tokens.subtrahend, table, vocabulary)) difference.sub_(table.select(0, *row));
  vocabulary.add(difference);
  return difference;
}

/// Views [S * N] as [S, N].
at::Tensor by_sequence(const at::Tensor& values, const at::Tensor& weight) {
  return values.view({-1, weight.size(0)});
}

}  // namespace

void vector_head_forward(const at::Tensor& y, const at::Tensor& values) {
  const at::Tensor rows = y.to(values.scalar_type());
  values.view(y.sizes()).copy_(rows / lengths_of(rows));
}

void vector_head_backward(const at::Tensor& y, const at::Tensor& grad_values, const at::Tensor& gy) {
  const at::Tensor rows = y.to(grad_values.scalar_type()), lengths = lengths_of(rows), grad = grad_values.view(y.sizes());
  const at::Tensor unit = rows / lengths;
  // A row shorter than the smallest length is divided by a constant.
  const at::Tensor along = (grad * unit).sum(1, /*keepdim=*/true) * lengths.gt(kSmallestNorm);
  gy.copy_((grad - unit * along) / lengths);
}

void token_difference_forward(const at::Tensor& y, const at::Tensor& table, const TokenPair& tokens, const at::Tensor& values,
                              const VocabularyPart& vocabulary) {
  value_head_forward(y, difference_of(table, tokens, values.scalar_type(), vocabulary), {}, values);
}

void token_difference_backward(const at::Tensor& y, const at::Tensor& table, const TokenPair& tokens,
                               const at::Tensor& grad_values, const at::Tensor& gy, const at::Tensor& gtable,
                               const VocabularyPart& vocabulary) {
  const at::Tensor weight = difference_of(table, tokens, grad_values.scalar_type(), vocabulary);
  const at::Tensor gweight = gtable.defined() ? at::zeros_like(weight) : at::Tensor();
  value_head_backward(y, weight, grad_values, gy, gweight, {});
  if (!gtable.defined()) return;
  if (vocabulary.shared()) vocabulary.add(gweight);
  if (const auto row = row_of(tokens.minuend, gtable, vocabulary)) gtable.select(0, *row).add_(gweight[0]);
  if (const auto row = row_of(tokens.subtrahend, gtable, vocabulary)) gtable.select(0, *row).sub_(gweight[0]);
}

void value_head_forward(const at::Tensor& y, const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& values) {
  const auto type = values.scalar_type();
  const at::Tensor products = at::mm(y.to(type), weight.to(type).t());
  by_sequence(values, weight).copy_(bias.defined() ? products + bias.to(type) : products);
}

void value_head_backward(const at::Tensor& y, const at::Tensor& weight, const at::Tensor& grad_values, const at::Tensor& gy,
                         const at::Tensor& gweight, const at::Tensor& gbias) {
  const auto type = grad_values.scalar_type();
  const at::Tensor grad = by_sequence(grad_values, weight);
  if (gweight.defined()) gweight.add_(at::mm(grad.t(), y.to(type)));
  if (gbias.defined()) gbias.add_(at::sum(grad, 0));
  gy.copy_(at::mm(grad, weight.to(type)));
}

}  // namespace qft::ops
