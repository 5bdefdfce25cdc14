// Reads and removes the copies in a folder on a node's local disk, by their manifests.
#pragma once

#include "qft/inputs/staged.h"

#include <ctime>
#include <filesystem>
#include <optional>
#include <sys/stat.h>
#include <vector>

namespace qft::inputs {

inline constexpr std::string_view kOwnFiles = ".qft";  ///< prefix of qft's own files, which are never copied

/// Returns the modification time in ns since 1970.
std::int64_t changed_at(const struct stat& status);

/// A copy as described by its manifest.
struct Copy {
  std::filesystem::path folder;
  StagedItem item;
  bool whole = false;
  std::time_t used = 0;    ///< the manifest's modification time: set at each use
  bool removable = false;  ///< this user may remove it
};
/// Returns the copy in a folder, or nullopt if the folder has no manifest of qft.
std::optional<Copy> copy_at(const std::filesystem::path& folder);
/// Returns all copies in a folder, least recently used first.
std::vector<Copy> copies_in(const std::filesystem::path& dir);
/// True if all files have the sizes and times in the manifest.
bool is_unchanged(const Copy& copy);

/// This process's lock on a copy's manifest.
struct Lock {
  int fd = -1;        ///< locked descriptor, which the caller must close; -1: none
  bool busy = false;  ///< a conflicting lock exists. fd -1 and not busy: no manifest, or no locks on this file system
};
/// Locks the copy's manifest. `kind`: LOCK_SH to use the copy, LOCK_EX to remove it.
Lock lock_of(const std::filesystem::path& folder, int kind);

/// True if the copy is not in use and this user may remove it.
bool is_free(const Copy& copy);
/// Removes the files in the manifest. Returns false if the copy is not free.
bool remove(const Copy& copy);

/// Writes the manifest. Returns its descriptor with a shared lock, taken before others can see the file; -1: no locks on this
/// file system.
int write_manifest(const std::filesystem::path& folder, const StagedItem& item, bool whole);

}  // namespace qft::inputs
