// Which file it is: by its name, and by its bytes.
#pragma once

#include "qft/io/file.h"

#include <filesystem>
#include <string>

namespace qft::io {

/// Whether the path still names the file that is open: a lock on one that was removed or replaced keeps nobody out.
bool is_named(int fd, const std::filesystem::path& path);

/// 16 hex digits, of the size and ten samples, first and last bytes among them; of a small file of all. Throws Error.
std::string sampled_hash(const File& file);

}  // namespace qft::io
