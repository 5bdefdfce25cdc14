// Finds the checkpoint that a run resumes from, and checks that it may.
#pragma once

#include "qft/checkpoint/restore.h"
#include "qft/comm/communicator.h"
#include "qft/config/run_config.h"
#include "qft/train/best_model.h"

#include <filesystem>
#include <optional>

namespace qft::train {

/// A file in output_dir: name and manifest checksum of the checkpoint at which the last run stopped, if the manifest itself does
/// not record the stop.
inline constexpr const char* kStopFile = "stopped.json";

/// A file in output_dir while its sweep is unfinished: sweep.cpp recognises a finished run by it.
inline constexpr const char* kSweepFile = ".qft-sweep-finished";

/// Records in output_dir that the run stopped at `checkpoint` and will be submitted again. Writes nothing if the checkpoint's
/// manifest already records the stop (saved after the request to stop) or the checkpoint lies elsewhere. If the file cannot be
/// written, warns. Collective; rank 0 holds output_dir.
void note_stop(const std::filesystem::path& output_dir, const std::filesystem::path& checkpoint, comm::Communicator& comm);

/// Returns the verified checkpoint to resume from; nullopt: starts from the beginning. resume_from_checkpoint may be a path (once
/// output_dir holds checkpoints of the branch that began there, the newest of these is taken) or `true` (the newest good
/// checkpoint); if absent, the newest good checkpoint in output_dir, in the order of checkpoint/branch.h. overwrite_output_dir
/// starts afresh, except if the run was stopped to be submitted again, or its batch job was requeued. Collective. Throws
/// ConfigError if a checkpoint was asked for and there is none, or if output_dir is in use; Error if the named checkpoint is
/// damaged.
std::optional<std::filesystem::path> find_resume_point(const config::RunConfig& config, comm::Communicator& comm);

/// Returns the run record that checkpoints will name: new or resumed. Rank 0's; empty on other ranks. Collective.
checkpoint::RunRecord begin_run(const config::RunConfig& config, const std::optional<std::filesystem::path>& resume_point,
                                comm::Communicator& comm);

/// Throws ConfigError if the run would use the checkpoint's tensors differently (finetuning_type, LoRA's rank and scale). Sets
/// the global batch in `config` to that of the run's first start, if it depends only on the number of ranks. Rank 0 logs the
/// other settings that changed. Returns true if none changed. Collective.
bool adopt(config::RunConfig& config, const checkpoint::SharedCheckpoint& saved, comm::Communicator& comm);

/// Finds the best checkpoint in output_dir by its recorded evaluation, because another branch may have taken its name. If it is
/// gone, forgets it with a warning. Collective.
void check_best(BestModel& best, const std::filesystem::path& output_dir, comm::Communicator& comm);

/// Removes the note of a stop (stopped.json): nothing is left to resume. Call on rank 0.
void forget_stop(const std::filesystem::path& output_dir);

/// Removes qft's checkpoints in output_dir; they belong to a run that is not resumed. Rank 0 does the work. Collective.
void remove_earlier_run(const std::filesystem::path& output_dir, comm::Communicator& comm);

}  // namespace qft::train
