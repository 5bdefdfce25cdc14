// The copies in a folder of a node's own disk, by their manifests.
#pragma once

#include "qft/inputs/staged.h"

#include <ctime>
#include <filesystem>
#include <optional>
#include <sys/stat.h>
#include <vector>

namespace qft::inputs {

inline constexpr std::string_view kOwnFiles = ".qft";  ///< how names of qft's own files begin: they are in no copy

/// ns since 1970
std::int64_t changed_at(const struct stat& status);

/// A copy, as its manifest says.
struct Copy {
  std::filesystem::path folder;
  StagedItem item;
  bool whole = false;
  std::time_t used = 0;    ///< the manifest's time: set at each use
  bool removable = false;  ///< by this user
};
/// Nothing where there is no manifest of qft's.
std::optional<Copy> copy_at(const std::filesystem::path& folder);
/// All of a folder, the longest unused first.
std::vector<Copy> copies_in(const std::filesystem::path& dir);
/// Whether its files have the sizes and times that the manifest states.
bool is_unchanged(const Copy& copy);

/// A descriptor of a copy's manifest, on which this process has a lock.
struct Lock {
  int fd = -1;        ///< to be closed by the caller; -1: none
  bool busy = false;  ///< another process has one against it. Neither: no manifest, or a file system without locks
};
/// `kind`: LOCK_SH to use the copy, LOCK_EX to remove it.
Lock lock_of(const std::filesystem::path& folder, int kind);

/// Whether nobody uses the copy, and this user may remove it.
bool is_free(const Copy& copy);
/// Removes the files that the manifest names; false where it is not free.
bool remove(const Copy& copy);

/// Writes the manifest, and returns a descriptor of it with a shared lock, which it has before others see it; -1: no locks here.
int write_manifest(const std::filesystem::path& folder, const StagedItem& item, bool whole);

}  // namespace qft::inputs
