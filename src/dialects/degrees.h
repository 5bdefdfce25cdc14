// Other tools' keys for tensor and context parallelism that depend on the keys beside them.
#pragma once

#include <cstdint>
#include <string>
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

/// Returns a degree that `where` gives. Throws ConfigError unless it is an integer from 1 to 2^20.
std::int64_t degree_of(const Value& value, const std::string& where);
/// The same for a Setting or a Leaf; 1 if it is not given (nullptr).
template <class Given>
std::int64_t degree_of(const Given* given) {
  return given == nullptr ? 1 : degree_of(given->value, given->where);
}

/// Returns the data ranks that accelerate's dp_replicate_size and dp_shard_size ask for, one of which is given.
template <class Given>
WorldClaim data_ranks_claim(const Given* replicate, const Given* shard) {
  const std::string where = replicate == nullptr ? shard->where
                            : shard == nullptr   ? replicate->where
                                                 : replicate->where + " x dp_shard_size";
  return {WorldClaim::Kind::data_ranks, degree_of(replicate) * degree_of(shard), where};
}

}  // namespace qft::dialects
