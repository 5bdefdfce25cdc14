// Rewrites a checkpoint as another number of ranks would have written it.
#pragma once

#include "qft/checkpoint/manifest.h"
#include "qft/io/storage.h"

#include <filesystem>

namespace qft::checkpoint {

/// Writes checkpoint `from` to the directory `to`, its training state in `ranks` files that hold an equal
/// share of every tensor each; model, adapter, tokenizer and state are the same, byte for byte. A piece of a
/// tensor in memory at a time; `to` appears whole or not at all. Returns the manifest. Throws Error where
/// `from` does not verify or holds no training state, and where `to` exists and is not an empty directory.
Manifest reshard(io::Storage& storage, const std::filesystem::path& from, const std::filesystem::path& to, int ranks);

}  // namespace qft::checkpoint
