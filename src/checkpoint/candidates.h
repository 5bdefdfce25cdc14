// Shared by the two searches for the newest good checkpoint, of one process and of many. Private to checkpoint.
#pragma once

#include "qft/checkpoint/verify.h"

#include <filesystem>

namespace qft::checkpoint {

/// Warns that `dir` is passed over, and why.
void log_skipped(const std::filesystem::path& dir, const VerifyReport& report);

}  // namespace qft::checkpoint
