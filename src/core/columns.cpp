#include "qft/core/columns.h"

#include "qft/core/error.h"

namespace qft {

std::span<const double> Column::entry(std::size_t index) const {
  QFT_ASSERT(index < size(), "entry {} of a column of {}", index, size());
  if (!has_lists()) return std::span(values).subspan(index, 1);
  const auto begin = static_cast<std::size_t>(offsets[index]), end = static_cast<std::size_t>(offsets[index + 1]);
  return std::span(values).subspan(begin, end - begin);
}

void Column::append_list(std::span<const double> list) {
  if (offsets.empty()) offsets.push_back(0);
  values.insert(values.end(), list.begin(), list.end());
  offsets.push_back(static_cast<std::int32_t>(values.size()));
}

Column Column::select(std::span<const std::size_t> entries) const {
  Column part{space};
  if (has_lists()) part.offsets.push_back(0);
  for (const std::size_t index : entries) {
    if (has_lists())
      part.append_list(entry(index));
    else
      part.values.push_back(entry(index).front());
  }
  return part;
}

}  // namespace qft
