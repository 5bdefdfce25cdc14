// Collects evidence from the first records of files without a description. Private to encode.
#pragma once

#include "qft/encode/dataset_info.h"

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "dataset_path.h"
#include <simdjson.h>

namespace qft::encode {

inline constexpr int kFirstRecords = 64;  // per file

/// Names, and the first record that has each ("data/a.jsonl:3").
using Names = std::map<std::string, std::string, std::less<>>;
/// Formats "a, b, c".
std::string listed(const Names& names);

/// Evidence from the messages in one column.
struct FirstMessages {
  Names keys, roles;
  bool is_dialogue = false;  // some record has two or more messages
};

struct FirstRecords {
  Names keys;                                                  // all columns, with or without a value
  std::vector<std::string> order;                              // the same, in the order of the records
  Names columns;                                               // columns with a value in some record
  Names flags;                                                 // columns with true or false (as_flag())
  Names numbers;                                               // columns with numbers
  Names texts;                                                 // columns without messages: the texts in their place
  std::map<std::string, FirstMessages, std::less<>> messages;  // by column
  Names placeholders;                                          // {{NAME}}, {{AUTHOR}}: texts to be filled in
  int records = 0;                                             // number of records that could be parsed
  std::string fault;                                           // error of the first record that could not be parsed

  bool has(std::string_view column) const { return columns.find(column) != columns.end(); }
  /// Returns the first of `names` that is a column; "" if none is.
  std::string first(Words names) const;
};

/// True for a missing value or an empty list.
bool is_empty(const simdjson::dom::element& value);
/// Returns the value's ValueKind bit.
ValueKind kind_of(const simdjson::dom::element& value);

/// Reads the first records of the first files.
FirstRecords read_first_records(const std::vector<std::filesystem::path>& files);

}  // namespace qft::encode
