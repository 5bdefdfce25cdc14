// The content of a YAML or JSON file before keys are interpreted: a tree of texts with line numbers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace qft::config {

struct Value {
  enum class Kind { null, scalar, list, map };
  Kind kind = Kind::null;
  std::string text{};   // scalar: the text as written, without quotes
  bool quoted = false;  // scalar: never a number, boolean or null
  int line = 0;         // line of the key in a map, else of the value; 0 without a file
  std::vector<Value> items{};
  std::vector<std::pair<std::string, Value>> entries{};  // in file order, no key twice
};

/// Reads a whole file. Throws ConfigError if it cannot be read, is not a regular file, or is larger than 4 MiB.
std::string read_text(const std::filesystem::path& path);

/// Throws ConfigError "where: not valid UTF-8 ..." unless `text` is UTF-8.
void require_utf8(const std::string& text, std::string_view where);

/// Parses one YAML document as PyYAML (YAML 1.1) would, without anchors, aliases and tags.
/// `where` names the source in errors ("run.yaml"). Throws ConfigError "run.yaml:7: ...".
Value parse_yaml(const std::string& text, std::string_view where);

/// Parses a JSON document.
Value parse_json(const std::string& text, std::string_view where);

/// Reads .json as JSON and everything else as YAML.
Value parse_file(const std::filesystem::path& path);

/// Interpret a scalar by YAML 1.1; nullopt if it has another type.
std::optional<bool> as_bool(const Value& value);
std::optional<std::int64_t> as_int(const Value& value);
std::optional<double> as_double(const Value& value);  // finite; also accepts quoted numbers, like Python's float("1e-4")

/// Converts the value to JSON; plain scalars get their types by the rules above.
nlohmann::json as_json(const Value& value);

/// Describes a value in messages: its text (shortened if long), "null", "a list" or "a mapping".
std::string describe(const Value& value);

}  // namespace qft::config
