// The text of a lock file, and the identity of this process. Private to io.
#pragma once

#include "qft/io/dir_lock.h"

#include <filesystem>
#include <optional>
#include <string>

namespace qft::io {

/// Size of every lock file, so that one write replaces its whole content.
inline constexpr std::size_t kLockBytes = 1024;

std::string lock_text(const LockHolder& holder);
/// Parses the text of a lock file; returns a holder without token if the file is being written or is damaged.
LockHolder parse_lock(const std::string& text);
/// Returns for example "qft train on n1 (pid 12, job 34, since 2026-01-02T03:04:05Z, run 0123abcd)".
std::string describe(const LockHolder& holder);
/// Reads a small file, fresh from the server; nullopt if there is no such file or it cannot be read.
std::optional<std::string> read_lock(const std::filesystem::path& path);

}  // namespace qft::io
