// Finds the rank that keeps the other ranks' devices waiting. A pure function of heartbeats.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "diagnosis.h"

namespace qft::job {

/// Returns "rank 2 on node7".
std::string name_of(const Heartbeat& b);
std::string names_of(const std::vector<const Watched*>& ranks);
std::string describe(const comm::CollectiveNote& n);

/// If devices are stuck in a collective, describes which hosts did not call it or which devices did not reach it; empty if no
/// device is in a collective. Does not name a rank if another collective holds up its device.
std::string device_stall(std::span<const Watched> ranks, double idle_seconds);

}  // namespace qft::job
