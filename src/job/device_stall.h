// Which rank keeps the devices of the others waiting: a pure function of what heartbeats say.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "diagnosis.h"

namespace qft::job {

/// "rank 2 on node7"
std::string name_of(const Heartbeat& b);
std::string names_of(const std::vector<const Watched*>& ranks);
std::string describe(const comm::CollectiveNote& n);

/// Where devices are in a collective that does not end: whose host did not call it, or whose device does not come to it, in
/// words; empty where no device is in one. A rank whose device is held up by another collective is not named for it.
std::string device_stall(std::span<const Watched> ranks, double idle_seconds);

}  // namespace qft::job
