// Helpers shared by methods, filters and globals, and the names of supported filters and tests: the parser refuses others by
// name. Internal to the module.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime.h"

namespace qft::jinja {

template <class Row, std::size_t count>
const Row* find_row(const Row (&rows)[count], std::string_view name) {
  for (const Row& row : rows)
    if (row.name == name) return &row;
  return nullptr;
}

const MethodRow* find_text_method(std::string_view name);

/// str.isupper() or str.islower().
bool has_case(std::string_view text, bool upper);
/// `side`: -1 pads after the text, 1 before it, 0 on both sides.
std::string pad_text(Runtime& rt, std::string_view text, std::int64_t width, std::string_view fill, int side);
/// str.replace(); a negative `most` replaces all.
Value replace_text(Runtime& rt, std::string_view text, std::string_view old, std::string_view with, std::int64_t most);
/// Parses an integer as int(text, base) does; nothing if that fails.
std::optional<Value> read_integer(Runtime& rt, std::string_view text, std::int64_t base);
/// Parses a float as float(text) does.
std::optional<double> read_real(std::string_view text);
/// Converts a number or a text as float() does. Fails if Python raises, except for a ValueError, which returns nothing.
std::optional<double> to_real(Runtime& rt, const Value& value);

struct FilterRow;
struct TestRow;

/// Returns null if there is none.
const FilterRow* find_filter(std::string_view name);
const TestRow* find_test(std::string_view name);
/// Whether Jinja2 has the filter and this module does not.
bool is_unsupported_filter(std::string_view name);
/// Whether a name refers to a function if no variable has that name (range, namespace ...).
bool is_global(std::string_view name);

}  // namespace qft::jinja
