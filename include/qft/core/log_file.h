// A process' log in a file too, beside what log.h prints.
#pragma once

#include "qft/core/log.h"

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace qft::log {

/// From here on everything from `level` on goes to dir/rank-<rank>.log as well, with the date; one that is there is gone on with.
/// The file that was open before is closed. At 16 MiB it becomes rank-<rank>.<number>.log and a new one begins; the newest five
/// of these stay. A disk that is full later stops nothing. Makes the folder; throws Error where that cannot be, or not be written
/// to.
void open_file(const std::filesystem::path& dir, Severity level);

/// From here on nothing goes to a file.
void close_file();

/// Whether a file's name is one of those.
bool is_log_file(std::string_view name);

/// To the file alone, where there is one: what is printed by other means.
void write_to_file(Severity severity, std::string_view message);

}  // namespace qft::log
