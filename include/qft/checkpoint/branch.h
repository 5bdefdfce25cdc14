// Tells which run wrote each checkpoint of an output directory, and in which order the checkpoints count. A run that starts
// afresh, or from a checkpoint that the user named, gets a new id and is a branch; a restarted run keeps its id. The branch
// that began last is the live one. Its line consists of its own checkpoints and its ancestors' checkpoints. Checkpoints of
// other branches are neither used nor removed.
#pragma once

#include "qft/checkpoint/manifest.h"
#include "qft/io/storage.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace qft::checkpoint {

/// The owner and state of a directory named checkpoint-<step>.
enum class Origin {
  ours,     ///< valid manifest; its files exist with the listed sizes
  damaged,  ///< a qft manifest that is invalid, or whose files are missing or have other sizes
  foreign,  ///< no qft manifest: written by another program
  link,     ///< a link; not followed
};

struct Entry {
  std::int64_t step = 0;
  std::filesystem::path dir;
  Origin origin = Origin::foreign;
  std::string reason;  ///< why the origin is not `ours`
  RunRecord run;       ///< this and the next fields are set only for `ours`
  std::string checksum;
  bool has_state = false;       ///< a run can resume from it
  bool aside = false;           ///< renamed, because a newer checkpoint of this step took its name
  bool on_live_branch = false;  ///< written by the live branch or one of its ancestors
};

/// Examines `dir`. Of the files, only the manifest is hashed.
Entry examine(const std::filesystem::path& dir);

/// Returns every checkpoint of `output_dir`, best first: checkpoints in line and damaged ones (their branch is unknown) from the
/// newest on, then checkpoints of abandoned branches, then foreign ones and links. Empty if the directory does not exist.
std::vector<Entry> rank_checkpoints(const std::filesystem::path& output_dir);

/// Describes checkpoint `dir` as the parent of a branch: by its manifest if that still exists, otherwise by path alone.
BranchPoint branch_point(const std::filesystem::path& dir);

/// Returns the directories to resume from, best first, without foreign ones; those without training state come last. With `from`:
/// only checkpoints of branches that began there.
std::vector<std::filesystem::path> resume_order(const std::filesystem::path& output_dir,
                                                const std::optional<BranchPoint>& from = {});

/// Returns the record of a run that resumes from checkpoint `from`, or starts afresh without one. It continues the run of
/// `from` if that is the live one of `output_dir` and `named` is false (the user did not name `from`); otherwise it is a new
/// run, which becomes the live one with its first save.
RunRecord next_run(const std::filesystem::path& output_dir, const std::optional<std::filesystem::path>& from, bool named);

/// Logs once which checkpoints of `output_dir` belong to another program, if any.
void log_foreign(const std::filesystem::path& output_dir);

/// Removes and logs all checkpoints of `output_dir` that are `Origin::ours`.
void remove_ours(io::Storage& storage, const std::filesystem::path& output_dir);

}  // namespace qft::checkpoint
