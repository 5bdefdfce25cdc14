// Identifies files by name and by content.
#pragma once

#include "qft/io/file.h"

#include <filesystem>
#include <string>

namespace qft::io {

/// True if the path still names the open file: a lock on a removed or replaced file keeps nobody out.
bool is_same_file(int fd, const std::filesystem::path& path);

/// Returns 16 hex digits: a hash of the file size and ten samples, the first and last bytes among them; a small file is hashed
/// whole. Throws Error.
std::string sampled_hash(const File& file);

}  // namespace qft::io
