#include "runnable.h"

#include "qft/config/bound_field.h"
#include "qft/config/dump.h"
#include "qft/core/error.h"

#include <algorithm>
#include <initializer_list>

namespace qft::config {
namespace {

/// A key or value that is not implemented yet. `value`: only this value; empty: all except the default.
struct MissingFeature {
  std::string_view key;
  std::string_view value;
  std::initializer_list<Purpose> purposes;
  std::string_view advice;
};

constexpr auto kPairPurposes = {Purpose::train, Purpose::eval, Purpose::plan};

// The only list of missing features. Remove a row after implementing it.
const MissingFeature kMissingFeatures[] = {
    {"pref_loss", "kto_pair", kPairPurposes, "TRL has dropped it too; pref_loss: sigmoid is the nearest"},
};

bool applies_to(const MissingFeature& row, Purpose purpose) {
  return std::find(row.purposes.begin(), row.purposes.end(), purpose) != row.purposes.end();
}

/// True if other stages read the key, but the run's stage does not.
bool is_unread(const RunConfig& config, std::string_view key) {
  if (config.stage().reads(key, config)) return false;
  return std::ranges::any_of(
      stages(), [&](const Stage& stage) { return std::ranges::find(stage.keys, key, &StageKey::key) != stage.keys.end(); });
}

}  // namespace

std::vector<std::string_view> not_implemented(std::string_view key, Purpose purpose) {
  std::vector<std::string_view> values;
  for (const MissingFeature& row : kMissingFeatures)
    if (row.key == key && applies_to(row, purpose)) values.push_back(row.value);
  return values;
}

void require_runnable(const RunConfig& config, Purpose purpose) {
  RunConfig asked = config, defaults;
  const auto fields = bound_fields(asked), initial = bound_fields(defaults);
  for (const MissingFeature& row : kMissingFeatures) {
    if (!applies_to(row, purpose) || is_unread(config, row.key)) continue;
    const BoundField* field = find_field(fields, row.key);
    QFT_ASSERT(field != nullptr, "the list of missing features names '{}', which is not a key", row.key);
    const nlohmann::json value = field_value(field->field, field->ref);
    const nlohmann::json initially = field_value(field->field, initial[field - fields.data()].ref);
    if (row.value.empty() ? value != initially : value == row.value) {
      fail_config("{} is {}, which is not implemented yet: {}", at_key(config, row.key), value.dump(), row.advice);
    }
  }
}

}  // namespace qft::config
