// A row of the table of other tools' keys, as it is written down.
#pragma once

#include <span>
#include <string_view>

#include "foreign_keys.h"

namespace qft::config {

/// Keys that share everything but their names, which blanks separate.
struct ForeignRow {
  ForeignKey::Class kind;
  std::string_view names;
  std::string_view reason = {};
  std::string_view harmless = {};
  std::string_view key = {};
  std::string_view words = {};
};

/// The rows of one tool, or of tools whose names go together.
std::span<const ForeignRow> foreign_rows(ForeignKey::Tool tool);

}  // namespace qft::config
