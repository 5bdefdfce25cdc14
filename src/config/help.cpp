#include "qft/config/run_config.h"
#include "qft/core/error.h"

#include "bound_field.h"
#include "dump.h"
#include "store.h"

namespace qft::config {
namespace {

std::string default_of(const BoundField& bound) {
  if (!bound.field.default_text.empty()) return std::string(bound.field.default_text);
  const nlohmann::json value = field_value(bound.field, bound.ref);
  if (value.is_null()) return "none";
  if (value.is_string()) return value;
  if (!value.is_array()) return value.dump();
  std::string list;
  for (const auto& item : value) {
    if (!list.empty()) list += ',';
    list += item.is_string() ? item.get<std::string>() : item.dump();
  }
  return list;
}

}  // namespace

std::string help_text() {
  RunConfig defaults;
  std::string out, group;
  for (const BoundField& bound : bound_fields(defaults)) {
    if (bound.group != group) {
      out += fmt::format("{}{}\n", out.empty() ? "" : "\n", bound.group);
      group = bound.group;
    }
    const std::string words =
        bound.field.choices.empty() ? "" : fmt::format(": {}", fmt::join(bound.field.choices, " | "));
    out += fmt::format("  {:<32} {}{} [{}]\n", bound.field.name, bound.field.help, words, default_of(bound));
  }
  return out;
}

}  // namespace qft::config
