// Copies a process' log to a file, in addition to the output of log.h.
#pragma once

#include "qft/core/log.h"

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace qft::log {

/// From now on writes each message from `level` on to dir/rank-<rank>.log as well, with the date; appends to an existing file.
/// Closes the file that was open before. At 16 MiB the file becomes rank-<rank>.<number>.log and a new one begins; the newest
/// five of these are kept. A disk that fills up later stops nothing. Creates the folder; throws Error if it cannot be created
/// or written to.
void open_file(const std::filesystem::path& dir, Severity level);

/// From now on writes to no file.
void close_file();

/// True if `name` is a file name that open_file() uses.
bool is_log_file(std::string_view name);

/// Writes to the file alone, if one is open. For messages that are printed by other means.
void write_to_file(Severity severity, std::string_view message);

}  // namespace qft::log
