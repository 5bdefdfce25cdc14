// Files that are not what their name says: Git LFS pointers, UTF-16, compressed files.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace qft {

/// Bytes at the beginning of a file that are enough for both functions.
inline constexpr std::size_t kLeadBytes = 64;

/// "'x.json' is a Git LFS pointer, not the file itself: ..." where a file that begins with `lead` is one, as
/// in a repository that was cloned without Git LFS; else "".
std::string describe_pointer(std::string_view lead, const std::filesystem::path& path);

/// The same for every kind of file that is taken for text and holds none: a pointer, UTF-16, a compressed file.
std::string describe_no_text(std::string_view lead, const std::filesystem::path& path);

}  // namespace qft
