#include "filters.h"

namespace qft::jinja {
namespace {

constexpr FilterRow kFilters[] = {
    {"abs", filters::absolute},
    {"attr", filters::attribute},
    {"batch", filters::batch},
    {"capitalize", filters::capitalize_filter},
    {"center", filters::center},
    {"count", filters::length_filter},
    {"d", filters::default_value},
    {"default", filters::default_value},
    {"dictsort", filters::dictsort},
    {"e", filters::escape},
    {"escape", filters::escape},
    {"filesizeformat", filters::filesizeformat},
    {"first", filters::first},
    {"float", filters::to_float},
    {"forceescape", filters::forceescape},
    {"format", filters::format},
    {"groupby", filters::groupby},
    {"indent", filters::indent},
    {"int", filters::to_integer},
    {"items", filters::items},
    {"join", filters::join},
    {"last", filters::last},
    {"length", filters::length_filter},
    {"list", filters::list},
    {"lower", filters::lower},
    {"map", filters::map},
    {"max", filters::maximum},
    {"min", filters::minimum},
    {"pprint", filters::pprint},
    {"reject", filters::reject},
    {"rejectattr", filters::rejectattr},
    {"replace", filters::replace},
    {"reverse", filters::reverse},
    {"round", filters::round},
    {"safe", filters::safe},
    {"select", filters::select},
    {"selectattr", filters::selectattr},
    {"slice", filters::slice},
    {"sort", filters::sort},
    {"string", filters::string},
    {"striptags", filters::striptags},
    {"sum", filters::sum},
    {"title", filters::title},
    {"tojson", filters::tojson},
    {"trim", filters::trim},
    {"truncate", filters::truncate},
    {"unique", filters::unique},
    {"upper", filters::upper},
    {"urlencode", filters::urlencode},
    {"wordcount", filters::wordcount},
    {"wordwrap", filters::wordwrap},
    {"xmlattr", filters::xmlattr},
};

}  // namespace

const FilterRow* find_filter(std::string_view name) {
  return find_row(kFilters, name);
}
bool is_unsupported_filter(std::string_view name) {
  return name == "random" || name == "urlize";
}

}  // namespace qft::jinja
