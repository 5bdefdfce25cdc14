// Several packs as one.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/pack/preprocess.h"

#include <filesystem>
#include <vector>

namespace qft::pack {

/// Makes `path` one pack of the items of `inputs` (two or more), in their order; their datasets follow each
/// other too. Collective; all ranks must see the files. Restarts, and does nothing where `path` is that pack
/// already, as PackBuilder does. Throws ConfigError with both values where tokenizer, template, stage,
/// cutoff_len or an option that shapes items differs.
PackReport merge_packs(comm::Communicator& comm, const std::vector<std::filesystem::path>& inputs,
                       const std::filesystem::path& path);

}  // namespace qft::pack
