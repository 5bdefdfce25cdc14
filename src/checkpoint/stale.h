// Private to checkpoint.
#pragma once

#include "qft/io/storage.h"

#include <filesystem>

namespace qft::checkpoint {

/// Removes what earlier runs left in `output_dir` under temporary names.
void remove_stale(io::Storage& storage, const std::filesystem::path& output_dir);

}  // namespace qft::checkpoint
