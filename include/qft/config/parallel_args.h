// Keys for sharding the model and its training state over the ranks. Each member is the YAML key of the same name.
#pragma once

#include "qft/config/field.h"

#include <cstdint>
#include <string>

namespace qft::config {

struct ParallelArgs {
  std::string strategy = "auto";
  std::int64_t hsdp_group_size = 0;  // 0 means "node"
  std::int64_t tensor_parallel = 1;
  std::int64_t context_parallel = 1;
  std::int64_t prefetch_bytes = 0;  // 0 is "auto"
  double max_memory = 0;            // GB; 0 is "auto"
  std::string offload_optimizer = "none";
  std::string offload_param = "none";
  std::string offload_activations = "none";

  /// Returns the ranks that compute the same samples together and so count as one data rank: tensor_parallel x context_parallel.
  std::int64_t ranks_of_a_data_rank() const { return tensor_parallel * context_parallel; }

  /// Returns what messages call a data rank: "rank" if each rank is one, else "data rank". For count_noun().
  const char* data_rank_noun() const { return ranks_of_a_data_rank() == 1 ? "rank" : "data rank"; }

  void visit(const FieldVisitor& field);
  bool operator==(const ParallelArgs&) const = default;
};

/// Returns the canonical name of a strategy: zero0 is ddp, full_shard is zero3.
std::string canonical_strategy(const std::string& name);

}  // namespace qft::config
