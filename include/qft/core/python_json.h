// Reads and writes JSON like Python's json module with ensure_ascii=False: the form of tool descriptions and calls in prompts.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace qft {

/// Objects keep the order of their keys. An integer beyond 64 bits is stored as binary that holds its digits.
using Json = nlohmann::ordered_json;

/// The parser rejects deeper nesting, because to walk, copy or print a value takes stack for every level. simdjson's limit is the
/// same, Python's json reads 994 levels.
inline constexpr int kMaxRecordDepth = 1024;

/// Parses JSON, including NaN, Infinity and -Infinity as Python does. Throws Error "WHAT: invalid JSON at byte N (from 1): reason
/// and remedy". Also throws if the text is nested too deeply, or if an object has a key twice: JSON does not say which of them
/// counts.
Json parse_python_json(std::string_view text, std::string_view what);

/// Returns the text with each bare number that JSON or 64 bits cannot hold (NaN, Infinity, 1e999, long integers) replaced by a
/// string, which parse_python_json() turns back into the number. For parsers that are stricter than Python.
std::string quote_python_numbers(std::string_view text);
/// True if `text` is the content of such a string.
bool is_quoted_number(std::string_view text);

/// Same as json.dumps(value, ensure_ascii=False); with `indent` > 0 json.dumps(..., indent=indent).
std::string dump_python_json(const Json& value, int indent = 0);

/// Same as repr(value) of a Python float.
std::string python_float(double value);

}  // namespace qft
