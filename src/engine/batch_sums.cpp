#include "qft/engine/batch_sums.h"

#include "qft/core/error.h"

#include <algorithm>

namespace qft::engine {

BatchSums::BatchSums(std::int64_t micro_batches, std::size_t width)
    : width_(width), sums_(width * static_cast<std::size_t>(micro_batches)) {}

void BatchSums::set(std::int64_t index, std::span<const double> sums) {
  const std::size_t at = width_ * static_cast<std::size_t>(index);
  QFT_ASSERT(at + width_ <= sums_.size() && sums.size() == width_, "micro-batch {} of {}", index, sums_.size() / width_);
  std::ranges::copy(sums, sums_.begin() + static_cast<std::ptrdiff_t>(at));
}

std::vector<double> BatchSums::all_reduce(const parallel::Groups& groups) {
  groups.sum_of_data_ranks(sums_);
  std::vector<double> all(width_, 0.0);
  for (std::size_t i = 0; i < sums_.size(); ++i) all[i % width_] += sums_[i];
  return all;
}

}  // namespace qft::engine
