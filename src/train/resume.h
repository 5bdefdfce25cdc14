// Which checkpoint a run resumes from, and whether it may.
#pragma once

#include "qft/checkpoint/branch.h"
#include "qft/checkpoint/restore.h"
#include "qft/comm/communicator.h"
#include "qft/config/run_config.h"
#include "qft/train/best_model.h"

#include <filesystem>
#include <optional>

namespace qft::train {

/// In output_dir: the checkpoint at which the last run was stopped, by name and its manifest's checksum, where its manifest does
/// not say so itself.
inline constexpr const char* kStopFile = "stopped.json";

/// In output_dir while its sweep is not over: what sweep.cpp knows a finished run by.
inline constexpr const char* kSweepFile = ".qft-sweep-finished";

/// Notes in output_dir that the run stopped at `checkpoint` and is to be submitted again. Not needed, and not written, where the
/// checkpoint's manifest says so itself (it was saved after the request to stop) or it lies elsewhere. A note that cannot be
/// written is a warning. Collective; rank 0 holds output_dir.
void note_stop(const std::filesystem::path& output_dir, const std::filesystem::path& checkpoint, comm::Communicator& comm);

/// The checkpoint to resume from, verified: resume_from_checkpoint as a path (once output_dir holds checkpoints of the branch
/// that began there, the newest of those) or `true` (the newest good one), or, where it is absent, the newest good one in
/// output_dir, in the order of checkpoint/branch.h. overwrite_output_dir starts afresh, but for a run that was stopped to be
/// submitted again, or whose batch job was put back into the queue. Collective. Throws ConfigError where there is none and one
/// was asked for, or output_dir is in use; Error where the one that was named is damaged.
std::optional<std::filesystem::path> find_resume_point(const config::RunConfig& config, comm::Communicator& comm);

/// The run that its checkpoints will name: begun here, or resumed. Rank 0's; empty on the others. Collective.
checkpoint::RunRecord begin_run(const config::RunConfig& config, const std::optional<std::filesystem::path>& resume_point,
                                comm::Communicator& comm);

/// Throws ConfigError where the run would make something else of the checkpoint's tensors (finetuning_type, LoRA's rank and
/// scale). Gives `config` the global batch that the run began with, where that follows from the number of ranks alone. Rank 0
/// logs which other settings have changed; true where none has. Collective.
bool adopt(config::RunConfig& config, const checkpoint::SharedCheckpoint& saved, comm::Communicator& comm);

/// Finds the best checkpoint in output_dir by what it says of itself: another branch may have taken its name. One that is not
/// there is forgotten, with a warning: it could not be the result. Collective.
void check_best(BestModel& best, const std::filesystem::path& output_dir, comm::Communicator& comm);

/// Removes the note of a stop (stopped.json): nothing is left to resume. Rank 0's call.
void forget_stop(const std::filesystem::path& output_dir);

/// Rank 0 removes the checkpoints of qft in output_dir, which belong to a run that is not resumed. Collective.
void remove_earlier_run(const std::filesystem::path& output_dir, comm::Communicator& comm);

}  // namespace qft::train
