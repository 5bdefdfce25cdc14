#include "qft/config/fields_file.h"

#include "qft/config/dump.h"
#include "qft/config/nearest.h"
#include "qft/config/store.h"
#include "qft/core/error.h"

#include <algorithm>
#include <vector>

#include "apply.h"

namespace qft::config {
namespace {

struct KnownField {
  Field field;
  FieldRef ref;
};

std::vector<KnownField> known_fields(const Visit& visit) {
  std::vector<KnownField> all;
  visit([&](const Field& field, FieldRef ref) { all.push_back({field, ref}); });
  return all;
}

void store_setting(const std::vector<KnownField>& fields, const Setting& setting) {
  std::vector<std::string_view> names;
  for (const KnownField& known : fields) names.push_back(known.field.name);
  const auto known = std::ranges::find(fields, setting.key, [](const KnownField& k) { return std::string_view(k.field.name); });
  if (known == fields.end()) {
    std::string list;
    for (const std::string_view name : names) list += fmt::format("{}{}", list.empty() ? "the keys are " : ", ", name);
    fail_config("{}: unknown key{}", setting.where, suggestion(setting.key, names, list));
  }
  store(known->field, known->ref, known->ref, setting.value, setting.where);
}

}  // namespace

std::set<std::string, std::less<>> read_fields(const std::filesystem::path& file, const Visit& visit) {
  const auto fields = known_fields(visit);
  std::set<std::string, std::less<>> given;
  for (const Setting& setting : settings_of(parse_file(file), file.string())) {
    store_setting(fields, setting);
    given.insert(setting.key);
  }
  return given;
}

void set_field(const std::string& assignment, const std::string& where, const Visit& visit) {
  Setting setting = override_setting(assignment);
  setting.where = fmt::format("{}: {}", where, setting.key);
  store_setting(known_fields(visit), setting);
}

std::string write_fields(const Visit& visit, const std::set<std::string, std::less<>>& leave_out) {
  std::string text;
  for (const KnownField& known : known_fields(visit)) {
    const nlohmann::json value = field_value(known.field, known.ref);
    const bool empty =
        value.is_null() || (value.is_string() && value.get<std::string>().empty()) || (value.is_array() && value.empty());
    if (empty || leave_out.count(known.field.name) > 0) continue;
    text += fmt::format("# {}\n{}: {}\n", known.field.help, known.field.name, yaml_text(value));
  }
  return text;
}

}  // namespace qft::config
