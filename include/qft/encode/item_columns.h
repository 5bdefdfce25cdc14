// The columns of items that their tags hold, by kind of sample.
#pragma once

#include "qft/config/stages.h"
#include "qft/core/columns.h"
#include "qft/encode/item.h"

#include <span>
#include <string_view>

namespace qft::columns {

/// Items of kind feedback: 1 if the item's answer is desirable, else 0.
inline constexpr std::string_view kDesirable = "desirable";
/// Items of kind sequence_label, lists: a class index, several label indices, or regression values.
inline constexpr std::string_view kTargets = "targets";
/// Items of kind texts: the label of the anchor and its positive, a similarity, or 1 and 0.
inline constexpr std::string_view kPairLabel = "pair_label";

}  // namespace qft::columns

namespace qft::encode {

/// A column with one entry per item.
struct ItemColumn {
  std::string_view name;
  /// Appends the item's entry; does nothing if the item has none. Throws Error if a tag that must be there is missing, or if it
  /// cannot be read.
  void (*append)(const std::vector<std::pair<std::string, std::string>>& tags, Column& column);
};

/// Returns the columns of items of this kind.
std::span<const ItemColumn> item_columns(config::SampleKind kind);

}  // namespace qft::encode
