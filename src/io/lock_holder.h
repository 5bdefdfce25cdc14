// The text of a lock file, and who this process is. Private to io.
#pragma once

#include "qft/io/dir_lock.h"

#include <filesystem>
#include <optional>
#include <string>

namespace qft::io {

/// All lock files have this size, so that one write changes all of them.
inline constexpr std::size_t kLockBytes = 1024;

std::string lock_text(const LockHolder& holder);
/// What the text says; a holder without token where it is none (being written, damaged).
LockHolder parse_lock(const std::string& text);
/// "qft train on n1 (pid 12, job 34, since 2026-01-02T03:04:05Z, run 0123abcd)".
std::string describe(const LockHolder& holder);
/// The whole of a small file, fresh from the server; nothing where there is none or it cannot be read.
std::optional<std::string> read_lock(const std::filesystem::path& path);

}  // namespace qft::io
