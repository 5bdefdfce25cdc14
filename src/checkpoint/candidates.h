// Shared by both searches for the newest good checkpoint: with one process and with many. Private to checkpoint.
#pragma once

#include "qft/checkpoint/verify.h"

#include <filesystem>

namespace qft::checkpoint {

/// Warns that `dir` is skipped, with the reason.
void log_skipped(const std::filesystem::path& dir, const VerifyReport& report);

}  // namespace qft::checkpoint
