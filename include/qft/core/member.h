// Files of a directory by names that nobody has checked: from an index, a manifest, an archive's links.
#pragma once

#include <filesystem>
#include <string_view>

namespace qft {

/// True for a name that can only mean a file of the same directory: not empty, "." or "..", no separator, no NUL.
bool is_plain_name(std::string_view name);

/// Whether links that lead out of their directory are followed, in this process from now on; at first they are not. For the key
/// follow_links: the user trusts whoever made the directories.
void follow_links(bool follow);

/// dir / name. Throws Error where the name is not plain, or is a link that leads out of `dir`, unless follow_links(true) was
/// called: whoever made the directory would choose which of the reader's files is read. Links within `dir` are followed, and, in
/// a snapshot of the Hugging Face cache (.../snapshots/<revision>/...), links into its blobs. The directory itself may be reached
/// through links. What is there must be a file: a pipe would be waited for. A file that is missing, or a link to one, is the
/// caller's to report.
std::filesystem::path member_of(const std::filesystem::path& dir, std::string_view name);

/// True for a plain name, and for two of them, FOLDER/NAME.
bool is_plain_path(std::string_view path);
/// member_of() of a plain path, whose folder may not be a link unless links are followed.
std::filesystem::path member_at(const std::filesystem::path& dir, std::string_view path);

}  // namespace qft
