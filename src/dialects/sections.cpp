#include "sections.h"

#include "qft/config/store.h"
#include "qft/core/error.h"

#include <utility>

#include "foreign_keys.h"

namespace qft::dialects {
namespace {

bool is_section(std::string_view key) {
  const ForeignKey* foreign = find_foreign(key);
  return foreign != nullptr && foreign->is<Section>() && key.find('.') == key.npos;
}

// Sections of version 1 have a name, which selects their keys.
bool has_name(std::string_view section) {
  return find_foreign(fmt::format("{}.name", section)) != nullptr;
}

// accelerate's files repeat the section's name: parallelism_config_tp_size.
std::string_view without_section(std::string_view key, std::string_view section) {
  const bool repeats = key.starts_with(section) && key.size() > section.size() && key[section.size()] == '_';
  return repeats ? key.substr(section.size() + 1) : key;
}

}  // namespace

bool is_below(std::string_view key, std::string_view section) {
  return key.size() > section.size() && key.starts_with(section) && key[section.size()] == '.';
}

std::vector<Setting> split_sections(std::vector<Setting> settings) {
  std::vector<Setting> apart;
  for (Setting& setting : settings) {
    if (!is_section(setting.key)) {
      apart.push_back(std::move(setting));
      continue;
    }
    const Value section = parse_nested(setting.value, setting.where);
    if (section.kind == Value::Kind::null)
      std::erase_if(apart, [&](const Setting& s) { return is_below(s.key, setting.key); });
    else if (section.kind != Value::Kind::map)
      fail_config("{}: expected a mapping {}, got {}", setting.where,
                  has_name(setting.key) ? "with a name and its keys" : "of keys to values", describe(section));
    const std::string file = setting.from_file() ? setting.source.substr(0, setting.source.rfind(':')) : "";
    for (const auto& [key, value] : section.entries) {
      Setting below{fmt::format("{}.{}", setting.key, without_section(key, setting.key)), value, setting.source, setting.where};
      if (setting.from_file())
        below.source = fmt::format("{}:{}", file, value.line);
      else
        below.value.line = 0;
      below.where = fmt::format("{}: {}", below.source, below.key);
      apart.push_back(std::move(below));
    }
  }
  return apart;
}

}  // namespace qft::dialects
