// JSON read and written as Python's json module does it with ensure_ascii=False: the form in which tool
// descriptions and calls appear in prompts.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace qft {

/// Objects keep their keys in order. An integer that fits no 64-bit type is held as binary: its digits.
using Json = nlohmann::ordered_json;

/// Deeper nesting is refused: to walk, copy and print a value takes stack for every level. simdjson reads as
/// deep, Python's json 994 levels.
inline constexpr int kMaxRecordDepth = 1024;

/// Takes NaN, Infinity and -Infinity too, as Python does. Throws Error "WHAT: invalid JSON at byte N (from 1):
/// why, and the way out", that it is nested too deeply, or that an object has a key twice: which of them a reader takes is not
/// said.
Json parse_python_json(std::string_view text, std::string_view what);

/// The text with every bare number that JSON or 64 bits do not have (NaN, Infinity, 1e999, long integers) as
/// a string that parse_python_json() turns back: for parsers that are stricter than Python.
std::string quote_python_numbers(std::string_view text);
/// True for the contents of such a string.
bool is_quoted_number(std::string_view text);

/// json.dumps(value, ensure_ascii=False), with `indent` > 0 json.dumps(..., indent=indent).
std::string dump_python_json(const Json& value, int indent = 0);

/// repr(value) of a Python float.
std::string python_float(double value);

}  // namespace qft
