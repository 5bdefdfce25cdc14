// Resolves file names from untrusted sources within a directory: from an index, a manifest, an archive's links.
#pragma once

#include <filesystem>
#include <string_view>

namespace qft {

/// True if the name can only mean a file of the same directory: not empty, "." or "..", no separator, no NUL.
bool is_plain_name(std::string_view name);

/// Sets whether this process follows links that lead out of their directory; initially it does not. For the key follow_links: the
/// user trusts the people who made the directories.
void follow_links(bool follow);

/// Returns dir / name. Throws Error if the name is not plain, or if it is a link that leads out of `dir` and follow_links(true)
/// was not called: the maker of the directory could choose any file of the reader. Links within `dir` are followed and, in a
/// snapshot of the Hugging Face cache (.../snapshots/<revision>/...), links into its blobs. The directory itself may be reached
/// through links. Throws Error if the name exists but is not a regular file: a read from a pipe would block. The caller must
/// report a missing file or a dangling link.
std::filesystem::path member_of(const std::filesystem::path& dir, std::string_view name);

/// True for a plain name and for two plain names, FOLDER/NAME.
bool is_plain_path(std::string_view path);
/// member_of() for a plain path. Its folder must not be a link unless follow_links(true) was called.
std::filesystem::path member_at(const std::filesystem::path& dir, std::string_view path);

}  // namespace qft
