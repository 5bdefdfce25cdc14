// Names of supported filters and tests; the parser refuses others by name. Internal to the module.
#pragma once

#include <string_view>

namespace qft::jinja {

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
