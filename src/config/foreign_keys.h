// The keys of LLaMA-Factory and transformers that have no field here, each with its class and the reason.
#pragma once

#include <string_view>
#include <vector>

#include "value.h"

namespace qft::config {

struct ForeignKey {
  /// moot: without effect here, noted once. refused: the result would differ from what was asked.
  /// renamed: another name of a key that has a field.
  enum class Class { moot, refused, renamed };
  Class kind;
  std::string_view name;
  std::string_view reason;  // renamed: the field's key
  /// Values that ask for nothing (the foreign default), as "null|false|1".
  std::string_view harmless;
};

/// The whole table.
const std::vector<ForeignKey>& foreign_keys();

/// The row of this name, or nullptr.
const ForeignKey* find_foreign(std::string_view name);

/// True where `value` is one of the words of `harmless` ("null|false|1"); lists and mappings only if empty.
bool is_harmless(std::string_view harmless, const Value& value);

}  // namespace qft::config
