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
/// Items of kind sequence_label: the item's targets: a class index, several label indices, or regression values; no values without a label.
inline constexpr std::string_view kTargets = "targets";

}  // namespace qft::columns

namespace qft::encode {

/// A column with one entry per item.
struct ItemColumn {
  std::string_view name;
  /// Appends the item's entry. Throws Error if a tag is missing or cannot be read.
  void (*append)(const std::vector<std::pair<std::string, std::string>>& tags, Column& column);
};

/// Returns the columns of items of this kind.
std::span<const ItemColumn> item_columns(config::SampleKind kind);

}  // namespace qft::encode
