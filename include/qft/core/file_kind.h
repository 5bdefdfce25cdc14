// Recognises files whose content does not match their name: Git LFS pointers, UTF-16, compressed files.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace qft {

/// Bytes from the beginning of a file that both functions need.
inline constexpr std::size_t kLeadBytes = 64;

/// Returns "'x.json' is a Git LFS pointer, not the file itself: ..." if `lead`, the file's first bytes, is such a pointer (the
/// repository was cloned without Git LFS); otherwise "".
std::string describe_pointer(std::string_view lead, const std::filesystem::path& path);

/// Like describe_pointer(), for each kind of file that has no plain text: an LFS pointer, UTF-16, a compressed file.
std::string describe_non_text(std::string_view lead, const std::filesystem::path& path);

}  // namespace qft
