#include "qft/ops/shared_rows.h"

#include "qft/core/error.h"

#include <algorithm>

namespace qft::ops {
namespace {

at::Tensor tokens_of(const at::Tensor& x, const SharedRows::Span& span) {
  return x.narrow(0, span.token, span.count);
}
at::Tensor rows_of(const at::Tensor& x, const SharedRows::Span& span) {
  return x.narrow(0, span.row, span.count);
}

void check(const SharedRows& shared, const at::Tensor& of_tokens, const at::Tensor& of_rows) {
  QFT_ASSERT(of_tokens.size(0) == shared.tokens && of_rows.size(0) == shared.rows,
             "got {} tokens and {} rows, expected {} and {}", of_tokens.size(0), of_rows.size(0), shared.tokens, shared.rows);
}

}  // namespace

SharedRows SharedRows::build(std::span<const std::int32_t> cu_seqlens, std::span<const std::int32_t> shared) {
  SharedRows all;
  all.tokens = all.rows = cu_seqlens.back();
  if (std::ranges::all_of(shared, [](std::int32_t n) { return n == 0; })) return all;
  require(shared.size() + 1 == cu_seqlens.size(), "{} sequences, but {} counts of shared tokens", cu_seqlens.size() - 1,
          shared.size());
  all.rows = 0;
  std::int64_t own = 0, before = 0;  // first token without a span; first row of the previous sequence
  const auto end_own = [&](std::int64_t token) {
    if (token == own) return;
    all.spans.push_back({own, all.rows, token - own, false});
    all.rows += token - own;
    own = token;
  };
  for (std::size_t s = 0; s < shared.size(); ++s) {
    const std::int64_t first = cu_seqlens[s], length = cu_seqlens[s + 1] - first, count = shared[s];
    const std::int64_t others = s == 0 || shared[s - 1] > 0 ? 0 : first - cu_seqlens[s - 1];
    require(count >= 0 && count <= std::min(length, others),
            "sequence {} cannot share {} tokens: it has {}, and the previous sequence offers {}", s, count, length, others);
    const std::int64_t row = all.rows + first - own;  // row of the sequence's first token if nothing were shared
    if (count > 0) {
      end_own(first);
      all.spans.push_back({first, before, count, true});
      own = first + count;
    }
    before = row;
  }
  end_own(cu_seqlens.back());
  return all;
}

std::int64_t SharedRows::row_of(std::int64_t token) const {
  if (!any()) return token;
  const auto after = std::ranges::upper_bound(spans, token, {}, &Span::token);
  QFT_ASSERT(after != spans.begin(), "token {} of {}", token, tokens);
  const Span& span = *std::prev(after);
  return span.row + token - span.token;
}

void expand_rows(const at::Tensor& x, const SharedRows& shared, const at::Tensor& to) {
  check(shared, to, x);
  for (const SharedRows::Span& span : shared.spans) tokens_of(to, span).copy_(rows_of(x, span));
}

void expand_gradient(const at::Tensor& g, const SharedRows& shared, const at::Tensor& to) {
  check(shared, to, g);
  for (const SharedRows::Span& span : shared.spans)
    span.repeated ? tokens_of(to, span).zero_() : tokens_of(to, span).copy_(rows_of(g, span));
}

void first_rows(const at::Tensor& x, const SharedRows& shared, const at::Tensor& to) {
  check(shared, x, to);
  for (const SharedRows::Span& span : shared.spans)
    if (!span.repeated) rows_of(to, span).copy_(tokens_of(x, span));
}

void sum_tokens(const at::Tensor& x, const SharedRows& shared, const at::Tensor& to) {
  check(shared, x, to);
  for (const SharedRows::Span& span : shared.spans)
    span.repeated ? rows_of(to, span).add_(tokens_of(x, span)) : rows_of(to, span).copy_(tokens_of(x, span));
}

}  // namespace qft::ops
