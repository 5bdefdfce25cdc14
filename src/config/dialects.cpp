#include "qft/config/dialects.h"

#include "qft/config/bound_field.h"
#include "qft/core/error.h"

#include <utility>

namespace qft::config {

std::optional<Dialects::Key> Dialects::find(std::string_view) const {
  return std::nullopt;
}

std::vector<std::string_view> Dialects::names() const {
  return {};
}

std::vector<std::string_view> Dialects::names_of(std::string_view) const {
  return {};
}

std::vector<std::string> Dialects::launcher_names_of(std::string_view) const {
  return {};
}

std::string Dialects::describe(std::string_view) const {
  return {};
}

Translation Dialects::translate(std::vector<Setting> settings, Purpose) const {
  Translation translation;
  translation.given = settings;
  translation.settings = std::move(settings);
  return translation;
}

void Dialects::complete(RunConfig& config, const Translation&, Purpose) const {
  const TrainingArgs& t = config.training;
  for (const auto& [key, given] : {std::pair{"deepspeed", !t.deepspeed.is_null()},
                                   {"fsdp", !t.fsdp.is_null()},
                                   {"fsdp_config", !t.fsdp_config.is_null()},
                                   {"accelerate_config", !t.accelerate_config.empty()}})
    if (given)
      fail_config("{}: this program does not read the configurations of other tools: set strategy and the offload_ keys instead",
                  at_key(config, key));
}

}  // namespace qft::config
