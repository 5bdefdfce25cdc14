// Named columns of a micro-batch: values beside tokens and labels, from the data or from a pass before the step. Loader and step
// inputs move them without knowing them; the objective reads them by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qft {

/// A column has one entry for each token, label, sequence or item of the micro-batch.
enum class IndexSpace : std::uint8_t { token, label, sequence, item };

/// Values in host memory. An entry is one number or, in a column of lists, any count of numbers.
struct Column {
  IndexSpace space = IndexSpace::item;
  std::vector<double> values = {};         ///< of all entries, one entry after another
  std::vector<std::int32_t> offsets = {};  ///< lists: entry i has values [offsets[i], offsets[i + 1]); empty: one value an entry

  bool has_lists() const { return !offsets.empty(); }
  std::size_t size() const { return has_lists() ? offsets.size() - 1 : values.size(); }
  std::span<const double> entry(std::size_t index) const;
  /// Appends an entry that is a list.
  void append_list(std::span<const double> list);
  /// Returns the entries with these indices, in their order.
  Column select(std::span<const std::size_t> entries) const;
  bool operator==(const Column&) const = default;
};

/// By name.
using Columns = std::map<std::string, Column, std::less<>>;

namespace columns {
/// Labels: the weight of each label, above 0. Present if the data has weights.
inline constexpr std::string_view kLabelWeights = "label_weights";
/// Sequences of ranking items: 1 for a positive document, 0 for a negative one. A group of documents begins at each 1.
inline constexpr std::string_view kDocumentLabels = "document_labels";
}  // namespace columns

}  // namespace qft
