// The keys of a RunConfig as a flat list: what reading, dumping and helping walk over.
#pragma once

#include "qft/config/run_config.h"

#include <string>
#include <string_view>
#include <vector>

namespace qft::config {

struct BoundField {
  Field field;
  FieldRef ref;  // into the RunConfig that bound_fields() got
  std::string_view group;
};

std::vector<BoundField> bound_fields(RunConfig& config);

/// The field of this name, or nullptr.
const BoundField* find_field(const std::vector<BoundField>& fields, std::string_view name);

/// "run.yaml:12: bf16" where the key was given, else its bare name: the head of a message about a relation.
std::string at_key(const RunConfig& config, std::string_view key);

}  // namespace qft::config
