// How the model and its training state are laid over the ranks.
#pragma once

#include "qft/config/field.h"

#include <string>

namespace qft::config {

struct ParallelArgs {
  std::string strategy = "auto";
  std::string offload_optimizer = "none";
  std::string offload_param = "none";

  void visit(const FieldVisitor& field);
  bool operator==(const ParallelArgs&) const = default;
};

}  // namespace qft::config
