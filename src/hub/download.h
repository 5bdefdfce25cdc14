// Downloads files from a hub to a store: several in parallel, each resumed after an interruption and verified.
#pragma once

#include <vector>

#include "store.h"

namespace qft::hub {

struct Download {
  const Api& api;
  const Listing& listing;
  Store& store;
  int threads = 8;
  bool show_progress = true;
  RetryPolicy trying = {};
};

/// Downloads the `files` that the store lacks and returns the number of bytes received. After an error, complete files and the
/// first bytes of the others stay. Throws Error if the disk has too little room (before any download), the hub refuses, stops or
/// sends bytes that differ from its listing, or the disk fails.
std::uint64_t download_files(const Download& download, const std::vector<RemoteFile>& files);

}  // namespace qft::hub
