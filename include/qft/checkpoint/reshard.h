// Rewrites a checkpoint for another number of ranks.
#pragma once

#include "qft/checkpoint/manifest.h"
#include "qft/io/storage.h"

#include <filesystem>

namespace qft::checkpoint {

/// Writes checkpoint `from` to the directory `to`, with the training state in `ranks` files that each hold an equal share of
/// every tensor. Model, adapter, tokenizer and state are copied byte for byte. Holds one piece of a tensor in memory at a time;
/// `to` appears complete or not at all. Returns the manifest. Throws Error if `from` does not verify or holds no training
/// state, or if `to` exists and is not an empty directory.
Manifest reshard(io::Storage& storage, const std::filesystem::path& from, const std::filesystem::path& to, int ranks);

}  // namespace qft::checkpoint
