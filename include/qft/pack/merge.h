// Merges several packs into one.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/pack/preprocess.h"

#include <filesystem>
#include <vector>

namespace qft::pack {

/// Writes the items of `inputs` (two or more) in their order into one pack `path`; their datasets are concatenated too.
/// Collective; all ranks must see the files. Like PackBuilder, resumes an interrupted merge and does nothing if `path` already
/// is this pack. Throws ConfigError with both values if tokenizer, template, stage, cutoff_len or an option that shapes items
/// differs.
PackReport merge_packs(comm::Communicator& comm, const std::vector<std::filesystem::path>& inputs,
                       const std::filesystem::path& path);

}  // namespace qft::pack
