// The parts of the preflight check: each looks at one thing and appends findings, the same on all ranks.
#pragma once

#include "qft/job/preflight.h"

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace qft::job {

/// What one rank knows about its process and node.
nlohmann::json gather_facts(const comm::Session& session, c10::Device device);

/// Compares the ranks' facts (by rank).
void compare_facts(const std::vector<nlohmann::json>& facts, std::vector<Finding>& findings);

/// One line per rank.
std::string format_ranks_table(const std::vector<nlohmann::json>& facts);

/// Looks at every path on every rank. Collective.
void check_paths(comm::Session& session, const std::vector<NeededPath>& paths, std::vector<Finding>& findings);

}  // namespace qft::job
