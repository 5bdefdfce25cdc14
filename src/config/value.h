// What a YAML or JSON file says, before anything is known about keys: a tree of texts with line numbers.
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
  int line = 0;         // of the key in a map, else of the value itself; 0 where there is no file
  std::vector<Value> items{};
  std::vector<std::pair<std::string, Value>> entries{};  // in file order, no key twice
};

/// Reads a whole file; throws ConfigError where it cannot be read, is no regular file, or is larger than what people write.
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

/// A scalar's meaning under YAML 1.1; nullopt where it has another type.
std::optional<bool> as_bool(const Value& value);
std::optional<std::int64_t> as_int(const Value& value);
std::optional<double> as_double(const Value& value);  // finite; quoted numbers too, as float("1e-4") in Python

/// The value as JSON, with plain scalars typed by the rules above.
nlohmann::json as_json(const Value& value);

/// A value for messages: the text itself (its beginning, where it is long), "null", "a list" or "a mapping".
std::string describe(const Value& value);

}  // namespace qft::config
