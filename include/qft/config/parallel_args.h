// Keys for sharding the model and its training state over the ranks. Each member is the YAML key of the same name.
#pragma once

#include "qft/config/field.h"

#include <cstdint>
#include <string>

namespace qft::config {

struct ParallelArgs {
  std::string strategy = "auto";
  std::int64_t hsdp_group_size = 0;  // 0 means "node"
  std::int64_t prefetch_bytes = 0;   // 0 is "auto"
  double max_memory = 0;             // GB; 0 is "auto"
  std::string offload_optimizer = "none";
  std::string offload_param = "none";
  std::string offload_activations = "none";

  void visit(const FieldVisitor& field);
  bool operator==(const ParallelArgs&) const = default;
};

/// Returns the canonical name of a strategy: zero0 is ddp, full_shard is zero3.
std::string canonical_strategy(const std::string& name);

}  // namespace qft::config
