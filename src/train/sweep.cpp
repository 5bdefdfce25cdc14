#include "qft/train/sweep.h"

#include "qft/checkpoint/branch.h"
#include "qft/comm/exchange.h"
#include "qft/config/run_config.h"
#include "qft/core/error.h"
#include "qft/core/hash.h"
#include "qft/core/log.h"
#include "qft/device/memory.h"
#include "qft/io/file.h"
#include "qft/io/storage.h"
#include "qft/job/output_dir.h"
#include "qft/job/run_main.h"
#include "qft/job/stop_signal.h"
#include "qft/watch/compare.h"
#include "qft/watch/terminal.h"

#include <cstdio>
#include <filesystem>

#include "resume.h"
#include <fmt/ranges.h>

namespace qft::train {
namespace {

namespace fs = std::filesystem;
using config::SweepRun;

/// Prints the table of the existing runs and writes their page.
void compare(const std::vector<SweepRun>& runs) {
  std::vector<fs::path> dirs;
  for (const SweepRun& run : runs)
    if (watch::is_run_dir(run.dir)) dirs.push_back(run.dir);
  if (dirs.empty()) return;
  try {
    const auto comparison = watch::compare_runs(dirs);
    std::printf("\n%s", watch::compare_text(comparison, watch::columns_of_output()).c_str());
    std::fflush(stdout);
    log::info("the sweep as a page: '{}'", watch::write_compare_page(comparison).string());
  } catch (const Error& e) {
    log::warn("cannot compare the sweep's runs completely: {}", e.what());
  }
}

/// A run in the sweep's own folder would be mistaken for the sweep.
void require_no_run_above(const std::vector<SweepRun>& runs, comm::Communicator& comm) {
  comm::agreed(comm, [&] {
    const fs::path above = runs.front().dir.parent_path();
    if (comm.rank() == 0 && watch::is_run_dir(above))
      fail_config("output_dir '{}' already holds a run: choose another for the sweep, which makes a folder for each of its runs",
                  above.string());
  });
}

/// Links another run's packs to a run without packs. Call on rank 0.
void share_packs(const std::vector<SweepRun>& runs, const SweepRun& run) {
  std::error_code ignored;
  const fs::path own = run.dir / job::kPackFolder;
  const auto here = static_cast<std::ptrdiff_t>(&run - runs.data()), count = static_cast<std::ptrdiff_t>(runs.size());
  for (const char* name : {"train.h5", "eval.h5"})
    // The previous run is the most similar.
    for (std::ptrdiff_t i = 1; i < count && !fs::exists(own / name, ignored); ++i) {
      const fs::path other = runs[static_cast<std::size_t>((here - i + count) % count)].dir / job::kPackFolder / name;
      if (!fs::exists(other, ignored)) continue;
      fs::create_directories(own, ignored);
      fs::create_hard_link(other, own / name, ignored);  // if links do not work, each run packs its own
    }
}

/// Returns a hash of a run's settings and newest checkpoint; empty if it has no checkpoint.
std::string result_of(const SweepRun& run) {
  auto settings = config::to_json(run.line.load(config::Purpose::train));
  for (const char* key : {"overwrite_output_dir", "resume_from_checkpoint"}) settings.erase(key);
  for (const checkpoint::Entry& entry : checkpoint::rank_checkpoints(run.dir))
    if (entry.origin == checkpoint::Origin::ours) return hash_hex(settings.dump() + entry.checksum);
  return {};
}

/// Marks a run as finished until the sweep is over: the same sweep, started again, does not overwrite it. Call on rank 0.
void note_finished(const SweepRun& run) {
  try {
    if (const std::string result = result_of(run); !result.empty())
      io::atomic_write_file(io::posix_storage(), run.dir / kSweepFile, result);
  } catch (const Error& e) {
    log::warn("cannot note that run {} is finished ({}): if the sweep stops, remove overwrite_output_dir to keep this run",
              run.name, e.what());
  }
}

/// True if overwrite_output_dir would remove a run that this sweep finished before it was interrupted. Collective.
bool must_be_kept(const SweepRun& run, comm::Communicator& comm) {
  bool kept = false;
  comm::agreed(comm, [&] {
    const fs::path note = run.dir / kSweepFile;
    if (comm.rank() != 0 || !fs::exists(note)) return;
    const config::TrainingArgs t = run.line.load(config::Purpose::train).training;
    if (!t.overwrite_output_dir || t.resume_from_checkpoint == "false") return;
    kept = io::read_text_file(note) == result_of(run);
    if (kept)
      log::warn(
          "'{}' was finished before the sweep was interrupted and is kept; overwrite_output_dir has no effect "
          "(resume_from_checkpoint: false starts afresh)",
          run.dir.string());
  });
  return comm::broadcast_value<std::int32_t>(comm, kept ? 1 : 0) != 0;
}

}  // namespace

std::string list_sweep(const std::vector<SweepRun>& runs) {
  std::string text;
  for (std::size_t i = 0; i < runs.size(); ++i)
    text += fmt::format("{}\t{}\t{}\n", i + 1, fmt::join(runs[i].overrides, " "), runs[i].dir.string());
  return text;
}

int run_of_sweep(const std::vector<SweepRun>& runs, const SweepRun& run, comm::Session& session, const TrainRun& train) {
  require_no_run_above(runs, session.world());
  return train(run.line, [&] { share_packs(runs, run); });
}

int run_sweep(const std::vector<SweepRun>& runs, comm::Session& session, const TrainRun& train) {
  require_no_run_above(runs, session.world());
  std::vector<std::string> failed;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const SweepRun& run = runs[i];
    log::info("run {} of {} of the sweep: {}; output_dir '{}'", i + 1, runs.size(), fmt::join(run.overrides, " "),
              run.dir.string());
    config::CommandLine line = run.line;
    if (must_be_kept(run, session.world())) line.overrides.emplace_back("overwrite_output_dir=false");
    const int code = job::run_part([&] { return train(line, [&] { share_packs(runs, run); }); });
    job::training_has_ended();
    log::close_file();  // messages about the sweep belong to no run
    device::release_unused();
    if (code == kExitRequeue) {
      if (session.rank() == 0)
        log::warn("the sweep stopped in run {} of {}: the same command continues there", i + 1, runs.size());
      return kExitRequeue;
    }
    if (code != kExitOk) failed.push_back(run.name);
    if (code == kExitOk && session.rank() == 0) note_finished(run);
  }
  std::error_code ignored;
  for (const SweepRun& run : runs)
    if (session.rank() == 0) fs::remove(run.dir / kSweepFile, ignored);
  if (session.rank() == 0) compare(runs);
  if (!failed.empty() && session.rank() == 0)
    log::error("{} of {} runs of the sweep failed: {}", failed.size(), runs.size(), fmt::join(failed, ", "));
  return failed.empty() ? kExitOk : kExitFailed;
}

}  // namespace qft::train
