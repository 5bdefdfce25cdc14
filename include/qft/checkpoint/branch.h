// Which run wrote the checkpoints of an output directory, and in which order they count. A run that starts afresh, or from a
// checkpoint that the user named, gets a new id and is a branch; one that is started again goes on under its id. The branch
// that began last is the live one; its line is its own checkpoints and those that it came from. What others wrote is neither
// used nor removed.
#pragma once

#include "qft/checkpoint/manifest.h"
#include "qft/io/storage.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace qft::checkpoint {

/// Who wrote a directory called checkpoint-<step>, and whether it is intact.
enum class Origin {
  ours,     ///< a sound manifest, and its files there with the sizes that it says
  damaged,  ///< a manifest of qft that is not sound, or whose files are not
  foreign,  ///< no manifest of qft: another program's
  link,     ///< not followed
};

struct Entry {
  std::int64_t step = 0;
  std::filesystem::path dir;
  Origin origin = Origin::foreign;
  std::string reason;  ///< where it is not ours
  RunRecord run;       ///< of one that is ours, as the rest
  std::string checksum;
  bool has_state = false;  ///< a run can resume from it
  bool aside = false;      ///< renamed, because a newer checkpoint of this step took its name
  bool in_line = false;    ///< of the live branch, or what that came from
};

/// What is at `dir`; nothing is hashed but the manifest.
Entry look_at(const std::filesystem::path& dir);

/// Every checkpoint of `output_dir`, best first: those in line (and damaged ones, of which that is not known) from the newest on,
/// then those of branches that were given up, then foreign ones and links. None where the directory does not exist.
std::vector<Entry> survey(const std::filesystem::path& output_dir);

/// The checkpoint `dir` as the parent of a branch: by its manifest where it is still there, else by path alone.
BranchPoint branch_point(const std::filesystem::path& dir);

/// The directories to resume from, best first, foreign ones left out; those without training state last. With `from`: only those
/// of branches that began there.
std::vector<std::filesystem::path> resume_order(const std::filesystem::path& output_dir,
                                                const std::optional<BranchPoint>& from = {});

/// The run that resumes from checkpoint `from`, or starts afresh where there is none: the run of `from` where that is the live
/// one of `output_dir` and was not `named` by the user, else a new one, which is the live one from its first save on.
RunRecord next_run(const std::filesystem::path& output_dir, const std::optional<std::filesystem::path>& from, bool named);

/// Logs once which checkpoints of `output_dir` are another program's, if any.
void log_foreign(const std::filesystem::path& output_dir);

/// Removes all checkpoints of `output_dir` that are ours, and logs them.
void remove_ours(io::Storage& storage, const std::filesystem::path& output_dir);

}  // namespace qft::checkpoint
