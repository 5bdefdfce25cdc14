// Files from a hub to a store: several at a time, each resumed where it stopped, and checked.
#pragma once

#include <string>
#include <vector>

#include "store.h"

namespace qft::hub {

struct Download {
  const Api& api;
  const Listing& listing;
  Store& store;
  int threads = 8;
  bool show_progress = true;
  Trying trying = {};
};

/// Brings those of `files` that the store lacks, and returns the bytes that came. Files that are whole stay where something
/// fails, and so do the first bytes of the others. Throws Error: the disk has no room (before anything comes), the hub refuses,
/// stops or sends other bytes than it states, the disk fails.
std::uint64_t bring(const Download& download, const std::vector<RemoteFile>& files);

}  // namespace qft::hub
