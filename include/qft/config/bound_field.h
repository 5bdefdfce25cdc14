// The keys of a RunConfig as a flat list, for reading, dumping and help.
#pragma once

#include "qft/config/run_config.h"

#include <string>
#include <string_view>
#include <vector>

namespace qft::config {

struct BoundField {
  Field field;
  FieldRef ref;  // points into the RunConfig given to bound_fields()
  std::string_view group;
};

std::vector<BoundField> bound_fields(RunConfig& config);

/// Returns the field with this name, or nullptr.
const BoundField* find_field(const std::vector<BoundField>& fields, std::string_view name);

/// Returns "run.yaml:12: bf16" if the key was given, else its bare name. Messages about relations begin with it.
std::string at_key(const RunConfig& config, std::string_view key);

}  // namespace qft::config
