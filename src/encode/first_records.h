// What the first records of files show that nothing describes. Private to encode.
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

inline constexpr int kFirstRecords = 64;  // of each file that are looked at

/// Names, and the record where each stands first ("data/a.jsonl:3").
using Names = std::map<std::string, std::string, std::less<>>;
/// "a, b, c"
std::string listed(const Names& names);

/// What the messages of a column show.
struct SeenMessages {
  Names keys, roles;
  bool is_dialogue = false;  // in some record there are two or more of them
};

struct Seen {
  Names keys;                                                 // the columns, with a value in some record or without
  Names columns;                                              // that have a value in some record
  Names flags;                                                // that are true or false (as_flag())
  Names numbers;                                              // that are numbers
  Names texts;                                                // where no messages were found: what stands there instead
  std::map<std::string, SeenMessages, std::less<>> messages;  // by their columns
  Names placeholders;                                         // {{NAME}}, {{AUTHOR}}: texts that wait for a value
  int records = 0;                                            // that could be parsed
  std::string fault;                                          // of the first record that could not

  bool has(std::string_view column) const { return columns.find(column) != columns.end(); }
  /// The first of `names` that is a column; "" for none.
  std::string first(Words names) const;
};

/// A missing value, or an empty list.
bool is_empty(const simdjson::dom::element& value);
/// The bit of ValueKind.
ValueKind kind_of(const simdjson::dom::element& value);

/// Of the first files.
Seen look_at_first_records(const std::vector<std::filesystem::path>& files);

}  // namespace qft::encode
