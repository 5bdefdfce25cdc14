#include "qft/model/head_exchange.h"

#include "qft/core/error.h"

namespace qft::model {
namespace {

/// Returns the extents that consecutive numbers form.
std::vector<Extent> extents_of(const std::vector<std::int64_t>& numbers) {
  std::vector<Extent> extents;
  for (const std::int64_t n : numbers)
    if (!extents.empty() && extents.back().end() == n)
      ++extents.back().count;
    else
      extents.push_back({n, 1});
  return extents;
}

std::vector<Extent> heads_of(const SequenceHeads& of_rank, bool of_keys) {
  return of_keys ? extents_of(of_rank.key_heads) : std::vector{of_rank.heads};
}

/// Returns the columns of all parts on a rank.
std::int64_t columns_of(const SequenceHeads& of_rank, std::span<const RowsOfHeads> parts) {
  std::int64_t columns = 0;
  for (const RowsOfHeads& part : parts) columns += of_rank.columns(part.rows.size(2), part.of_keys);
  return columns;
}

}  // namespace

HeadExchange::HeadExchange(const SequenceShare& share, const RowSharing& context, std::int64_t rows, ops::Workspace& workspace)
    : share_(share), context_(context), rows_(rows), workspace_(workspace) {
  QFT_ASSERT(static_cast<int>(share.ranks.size()) == context.ranks() && share.rank == context.rank(),
             "heads for rank {} of {}, on rank {} of {}", share.rank, share.ranks.size(), context.rank(), context.ranks());
}

std::vector<std::int64_t> HeadExchange::packed_counts(std::span<const RowsOfHeads> parts) const {
  std::vector<std::int64_t> counts;
  for (const SequenceHeads& of_rank : share_.ranks) counts.push_back(parts.front().rows.size(0) * columns_of(of_rank, parts));
  return counts;
}

std::vector<std::int64_t> HeadExchange::whole_counts(const at::Tensor& whole) const {
  std::vector<std::int64_t> counts;
  for (int rank = 0; rank < context_.ranks(); ++rank) counts.push_back(context_.rows_of(rows_, rank).count * whole.size(1));
  return counts;
}

at::Tensor HeadExchange::packed(std::span<const RowsOfHeads> parts) const {
  std::int64_t columns = 0;
  for (const SequenceHeads& of_rank : share_.ranks) columns += columns_of(of_rank, parts);
  const at::Tensor& first = parts.front().rows;
  return workspace_.get(kExchangedHeads, {first.size(0) * columns}, first.scalar_type());
}

template <class F>
void HeadExchange::for_each_place(std::span<const RowsOfHeads> parts, const at::Tensor& packed, const F& f) const {
  const std::int64_t rows = parts.front().rows.size(0);
  std::int64_t first = 0;
  for (const SequenceHeads& of_rank : share_.ranks) {
    const std::int64_t columns = columns_of(of_rank, parts);
    const at::Tensor block = packed.narrow(0, first, rows * columns).view({rows, columns});
    first += rows * columns;
    std::int64_t column = 0;
    for (const RowsOfHeads& part : parts)
      for (const Extent& heads : heads_of(of_rank, part.of_keys)) {
        const std::int64_t width = part.rows.size(2);
        f(part.rows.narrow(1, heads.begin, heads.count),
          block.narrow(1, column, heads.count * width).unflatten(1, {heads.count, width}), part);
        column += heads.count * width;
      }
  }
}

void HeadExchange::to_sequences(std::span<const RowsOfHeads> parts, const at::Tensor& whole) const {
  QFT_ASSERT(whole.size(0) == rows_ && whole.size(1) == columns_of(share_.mine(), parts),
             "a buffer of {} x {} for {} x {} exchanged numbers", whole.size(0), whole.size(1), rows_,
             columns_of(share_.mine(), parts));
  const at::Tensor to = packed(parts);
  for_each_place(parts, to, [](const at::Tensor& heads, const at::Tensor& place, const RowsOfHeads&) { place.copy_(heads); });
  context_.all_to_all(to, packed_counts(parts), whole, whole_counts(whole));
}

void HeadExchange::to_rows(const at::Tensor& whole, std::span<const RowsOfHeads> parts) const {
  const at::Tensor from = packed(parts);
  context_.all_to_all(whole, whole_counts(whole), from, packed_counts(parts));
  const auto adds = [&](const RowsOfHeads& part) { return part.of_keys && share_.repeats_keys; };
  for (const RowsOfHeads& part : parts)
    if (adds(part)) part.rows.zero_();
  for_each_place(parts, from, [&](const at::Tensor& heads, const at::Tensor& place, const RowsOfHeads& part) {
    adds(part) ? heads.add_(place) : heads.copy_(place);
  });
}

}  // namespace qft::model
