// Other tools' keys for tensor and context parallelism that depend on the keys beside them.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "config_names.h"

namespace qft::dialects {

/// The result of reading these keys.
struct Degrees {
  std::vector<Setting> settings;                                    // with qft's keys
  std::vector<WorldClaim> claims;                                   // data ranks that a key gives
  std::vector<std::pair<const Setting*, std::string_view>> unused;  // keys without effect, each with its reason
};

/// Reads tensor_parallel_size (which has no effect if the run has keys of another inference engine), and accelerate's
/// dp_replicate_size and dp_shard_size: their product must be the number of data ranks, and both together are hsdp. `settings`:
/// after split_sections(); the result refers to them. Throws ConfigError for a degree that is not an integer of at least 1.
Degrees read_degrees(const std::vector<Setting>& settings);

}  // namespace qft::dialects
