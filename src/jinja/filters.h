// The filters of the table in filters.cpp. Internal to the module.
#pragma once

#include "methods.h"

namespace qft::jinja::filters {

using Filter = Value(Runtime& rt, const Value& self, CallArgs& args);

// Filters for texts (filters_text.cpp).
Filter capitalize_filter, center, escape, filesizeformat, forceescape, format, indent, lower, pprint, replace, safe, string,
    striptags, title, tojson, trim, truncate, upper, urlencode, wordcount, wordwrap, xmlattr;
// Filters for numbers and any value (filters_value.cpp).
Filter absolute, attribute, default_value, to_float, to_integer, round;
// Filters for lists (filters_list.cpp, filters_select.cpp).
Filter batch, dictsort, first, groupby, items, join, last, length_filter, list, map, maximum, minimum, reject, rejectattr,
    reverse, select, selectattr, slice, sort, sum, unique;

/// Looks up an attribute path such as "a.0.b" in items, as filters do.
class Getter {
 public:
  /// If `attribute` is null or None, returns the item itself.
  Getter(Runtime& rt, const Value* attribute, const Value* fallback = nullptr, bool lower = false);
  Value operator()(Runtime& rt, Value item) const;

 private:
  std::vector<Value> parts_;
  Value fallback_;
  bool lower_;
};

/// Lowers the case of a text; returns other values unchanged.
Value ignore_case(Runtime& rt, Value value);

}  // namespace qft::jinja::filters
