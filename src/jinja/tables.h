// What filters and tests exist: the parser refuses the others by name. Internal to the module.
#pragma once

#include <string_view>

namespace qft::jinja {

struct FilterRow;
struct TestRow;

/// Null: there is none.
const FilterRow* find_filter(std::string_view name);
const TestRow* find_test(std::string_view name);
/// Whether Jinja2 has it and we do not.
bool is_left_out_filter(std::string_view name);
/// Whether a name without a variable means a function (range, namespace ...).
bool is_global(std::string_view name);

}  // namespace qft::jinja
