// Other tools' keys for tensor and context parallelism that depend on the keys beside them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config_names.h"

namespace qft::dialects {

/// The result of reading these keys.
struct Degrees {
  std::vector<Setting> settings;   // with qft's keys
  std::vector<WorldClaim> claims;  // data ranks that a key gives
};

/// Reads accelerate's dp_replicate_size and dp_shard_size: their product must be the number of data ranks, and both together are
/// hsdp. `settings`: after split_sections(). Throws ConfigError for a degree that is not an integer of at least 1.
Degrees read_degrees(const std::vector<Setting>& settings);

/// True for a key of another inference engine, beside which tensor_parallel_size is that engine's.
bool names_engine(const Setting& setting);

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
