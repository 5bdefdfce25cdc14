#include "resume.h"

#include "qft/checkpoint/branch.h"
#include "qft/checkpoint/checkpoint.h"
#include "qft/comm/exchange.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/eval/compare.h"
#include "qft/eval/evaluate.h"
#include "qft/eval/score.h"
#include "qft/io/dir_lock.h"
#include "qft/io/file.h"
#include "qft/io/storage.h"
#include "qft/job/batch_job.h"
#include "qft/job/output_dir.h"
#include "qft/optim/rule.h"
#include "qft/track/tracker.h"
#include "qft/train/run_log.h"
#include "qft/watch/page.h"
#include "qft/watch/run_view.h"

#include <algorithm>

#include <fmt/ranges.h>

namespace qft::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// True for files that an evaluation, or a run without a checkpoint, leaves: a new run may start beside them.
bool is_leftover(const std::string& name) {
  return name == job::kPackFolder || name == kLogFile || name.starts_with(io::kTempPrefix) || name.starts_with(io::kLockFile) ||
         name == kStopFile || name == kSweepFile || log::is_log_file(name) || name == track::kRunFile ||
         name == watch::kProgressFile || name == track::kRunsFolder || name == track::kMlflowFile || name == watch::kReportFile ||
         name.starts_with(".nfs") ||  // NFS's name for a file that was removed while open
         name.ends_with("_results.json") || name == eval::kPredictionsFile || name == eval::kComparedFile ||
         name == eval::kScoresFile;
}

/// True if `folder` is not empty and is `entry` or lies in it.
bool holds(const fs::path& entry, const std::string& folder) {
  const auto whole = [](const fs::path& path) { return fs::absolute(path).lexically_normal().string() + "/"; };
  return !folder.empty() && whole(folder).starts_with(whole(entry));
}

bool in_use(const config::TrainingArgs& t) {
  const fs::path dir = t.output_dir;
  if (!fs::is_directory(dir)) return fs::exists(dir);
  for (const auto& entry : fs::directory_iterator(dir))
    if (!is_leftover(entry.path().filename().string()) && !holds(entry.path(), t.log_dir) &&
        !holds(entry.path(), t.logging_dir) && !holds(entry.path(), t.trace))
      return true;
  return false;
}

/// True if a run stopped at this checkpoint, to be submitted again.
bool was_stopped_at(const fs::path& dir) {
  const checkpoint::Manifest manifest = checkpoint::Manifest::read(dir);
  if (manifest.state.value("stopped", false)) return true;
  const fs::path note = dir.parent_path() / kStopFile;
  if (!fs::exists(note)) return false;
  try {
    const json stop = io::read_json(note);
    return stop.is_object() && stop.value("manifest", json()) == manifest.checksum;
  } catch (const Error& e) {
    log::warn("cannot tell whether the last run should be resumed: {}", e.what());
    return true;  // safer than a fresh start, which removes the checkpoints
  }
}

job::JobRun job_of(const json& state) {
  const json restarts = state.value("job_restarts", json(0));
  return {state.value("job", ""), restarts.is_number_integer() ? std::optional(restarts.get<std::int64_t>()) : std::nullopt};
}

/// True if a run stopped at this checkpoint, to be submitted again, or its batch job was requeued. Collective.
bool should_resume(const fs::path& dir, comm::Communicator& comm) {
  bool resumable = false;
  comm::agreed(comm, [&] {
    if (comm.rank() == 0)
      resumable = was_stopped_at(dir) || job::was_requeued(job_of(checkpoint::Manifest::read(dir).state), job::this_job());
  });
  return comm::broadcast_value<std::int32_t>(comm, resumable ? 1 : 0) != 0;
}

std::string key_location(const config::RunConfig& config, const std::string& key) {
  const auto given = config.given.find(key);
  return given == config.given.end() ? key : given->second + ": " + key;
}

/// Keys that define the checkpoint's tensors: other values would make another model.
std::vector<std::string> fixed_keys(const config::RunConfig& config) {
  std::vector<std::string> keys{"stage",
                                "num_labels",
                                "problem_type",
                                "reranker_type",
                                "finetuning_type",
                                "quantization_bit",
                                "quantization_method",
                                "quantization_type",
                                "double_quantization",
                                "rope_scaling"};
  // An existing adapter brings its own settings.
  if (config.finetuning.finetuning_type == "lora" && engine::adapter_paths(config, engine::Use::training).live.empty())
    keys.insert(keys.end(), {"lora_rank", "lora_alpha", "use_rslora", "use_dora", "pissa_init", "rank_pattern", "alpha_pattern",
                             "additional_target"});
  if (config.finetuning.finetuning_type == "oft" && engine::adapter_paths(config, engine::Use::training).live.empty())
    keys.insert(keys.end(), {"oft_rank", "oft_block_size", "use_cayley_neumann", "num_cayley_neumann_terms", "block_share",
                             "additional_target"});
  if (config.finetuning.finetuning_type == "freeze")
    keys.insert(keys.end(), {"freeze_trainable_layers", "freeze_trainable_modules", "freeze_extra_modules", "use_llama_pro"});
  return keys;
}

/// An optimizer cannot use another optimizer's state.
void require_same_rule(const config::RunConfig& config, const json& before, const fs::path& dir) {
  const std::string& ours = config.training.optim;
  const std::string theirs = before.value("optim", ours);
  const auto& names = optim::rule_of(ours).optim;
  if (std::find(names.begin(), names.end(), theirs) == names.end())
    fail_config(
        "{} is {}, but '{}' was trained with {}, and another optimizer cannot use its state: set it back, or start a new run in "
        "another output_dir with {}: {}",
        key_location(config, "optim"), ours, dir.string(), theirs,
        config.finetuning.trains_adapter() ? "adapter_name_or_path" : "model_name_or_path", dir.string());
}

/// Returns `config` with the run's global batch, whether given or derived from the number of ranks.
json with_global_batch(json config, const json& global_batch) {
  config["global_batch_size"] = global_batch;
  return config;
}

/// True for a key that only says how to start, and for a value that leaves the choice open (an earlier version wrote its
/// default).
bool is_left_open(std::string_view key, const json& now) {
  return key == "resume_from_checkpoint" || key == "overwrite_output_dir" || (key == "logging_steps" && now == "auto");
}

/// Returns "key old -> new" for every relevant setting that both have and that differs.
std::vector<std::string> changes(const json& before, const json& now) {
  std::vector<std::string> list;
  for (const auto& [key, value] : now.items())
    if (before.contains(key) && before[key] != value && !is_left_open(key, value))
      list.push_back(fmt::format("{} {} -> {}", key, before[key].dump(), value.dump()));
  return list;
}

/// If the global batch follows from the number of ranks, a resumed run keeps the one of its first start.
void adopt_global_batch(config::RunConfig& config, const json& state, int ranks) {
  auto& t = config.training;
  if (config.is_given("global_batch_size")) return;
  const json& before = state.at("config");
  if (before.value("per_device_train_batch_size", json()) != t.per_device_train_batch_size ||
      before.value("gradient_accumulation_steps", json()) != t.gradient_accumulation_steps)
    return;  // the loader's error names both
  t.global_batch_size = state.at("global_batch_size").get<std::int64_t>();
  config.check_world(ranks);
}

/// True if resume_from_checkpoint is a path.
bool names_checkpoint(const std::string& wish) {
  return !wish.empty() && wish != "true" && wish != "false";
}

/// Returns the named checkpoint at first; once output_dir holds checkpoints of the branch that began there, the newest of these.
fs::path branch_from(const fs::path& named, const config::RunConfig& config, comm::Communicator& comm) {
  const auto& t = config.training;
  const auto latest = checkpoint::find_latest_verified(comm, t.output_dir, named);
  if (latest && (!t.overwrite_output_dir || should_resume(*latest, comm))) {
    if (comm.rank() == 0)
      log::info(
          "'{0}' belongs to the branch that began at '{1}' and is resumed (to start from '{1}' again use another output_dir)",
          latest->string(), named.string());
    return *latest;
  }
  checkpoint::require_verified(comm, named);
  return named;
}

/// True if the checkpoint records this evaluation as its own.
bool was_measured(const checkpoint::Entry& entry, const BestModel::Measured& measured) {
  const json state = checkpoint::Manifest::read(entry.dir).state;
  if (!state.contains("progression")) return false;
  const BestModel own = best_from_json(state["progression"].at("best"));
  return own.checkpoint == checkpoint::directory_name(entry.step) && own.at_checkpoint == measured;
}

/// Returns the name of the checkpoint in `dir` that records this evaluation as its own; empty: none. Its name may differ, because
/// another branch may have a checkpoint of that step.
std::string find_measured(const fs::path& dir, const BestModel::Measured& measured) {
  for (const checkpoint::Entry& entry : checkpoint::rank_checkpoints(dir)) {
    if (entry.origin != checkpoint::Origin::ours || entry.step != measured.step) continue;
    try {
      if (was_measured(entry, measured)) return entry.dir.filename().string();
    } catch (const std::exception& e) {
      log::warn("'{}' cannot become the best checkpoint: cannot read its evaluation ({})", entry.dir.string(), e.what());
    }
  }
  return {};
}

}  // namespace

std::optional<fs::path> find_resume_point(const config::RunConfig& config, comm::Communicator& comm) {
  const auto& t = config.training;
  const std::string& wish = t.resume_from_checkpoint;
  comm::agreed(comm, [&] {
    if (comm.rank() == 0) checkpoint::log_foreign(t.output_dir);
  });
  if (names_checkpoint(wish)) return branch_from(wish, config, comm);
  const bool asked = wish == "true";
  if (asked || wish.empty()) {
    const auto latest = checkpoint::find_latest_verified(comm, t.output_dir);
    if (latest && (asked || !t.overwrite_output_dir)) return latest;
    if (latest && should_resume(*latest, comm)) {
      if (comm.rank() == 0)
        log::warn(
            "'{}' belongs to an interrupted run and is resumed; overwrite_output_dir has no effect "
            "(resume_from_checkpoint: false starts afresh)",
            latest->string());
      return latest;
    }
    if (asked)
      fail_config(
          "resume_from_checkpoint is true, but '{}' holds no valid checkpoint: remove the key to start from the beginning",
          t.output_dir);
  }
  const bool used = comm::broadcast_value<std::int32_t>(comm, in_use(t)) != 0;
  if (used && !t.overwrite_output_dir && wish == "false")
    fail_config(
        "resume_from_checkpoint is false, but output_dir '{}' is not empty: choose another, or set overwrite_output_dir: true, "
        "which removes the checkpoints of qft in it",
        t.output_dir);
  if (used && !t.overwrite_output_dir)
    fail_config(
        "output_dir '{}' exists and is not empty, and holds no checkpoint to resume from: choose another, or set "
        "overwrite_output_dir: true",
        t.output_dir);
  return std::nullopt;
}

checkpoint::RunRecord begin_run(const config::RunConfig& config, const std::optional<fs::path>& resume_point,
                                comm::Communicator& comm) {
  checkpoint::RunRecord run;
  comm::agreed(comm, [&] {
    if (comm.rank() != 0) return;
    const bool named = resume_point && *resume_point == config.training.resume_from_checkpoint;
    run = checkpoint::next_run(config.training.output_dir, resume_point, named);
  });
  return run;
}

bool adopt(config::RunConfig& config, const checkpoint::SharedCheckpoint& saved, comm::Communicator& comm) {
  bool same = false;
  comm::agreed(comm, [&] {
    const json& state = saved.state();
    require(state.contains("progression"), "'{}' does not hold a training state of qft", saved.dir().string());
    const json& before = state.at("config");
    const json now = config::to_json(config);
    for (const std::string& key : fixed_keys(config))
      if (before.contains(key) && before[key] != now[key])
        fail_config("{} is {}, but '{}' was trained with {}: set it back, or start a new run in another output_dir",
                    key_location(config, key), now[key].dump(), saved.dir().string(), before[key].dump());
    require_same_rule(config, before, saved.dir());
    adopt_global_batch(config, state, comm.size());
    const json& batch = state.at("global_batch_size");
    const auto& asked = config.training.global_batch_size;
    const auto changed = changes(with_global_batch(before, batch), with_global_batch(now, asked ? json(*asked) : batch));
    same = changed.empty();
    if (comm.rank() == 0 && !changed.empty())
      log::info("settings changed since '{}': {}", saved.dir().string(), fmt::join(changed, ", "));
  });
  return same;
}

void check_best(BestModel& best, const fs::path& output_dir, comm::Communicator& comm) {
  if (best.checkpoint.empty()) return;
  std::string name;
  comm::agreed(comm, [&] {
    if (comm.rank() == 0) name = find_measured(output_dir, best.at_checkpoint);
  });
  name = comm::broadcast_string(comm, name);
  if (name.empty() && comm.rank() == 0)
    log::warn(
        "the best checkpoint so far is gone: '{}' has no checkpoint of step {} with {:.4f}; only evaluations from here on count",
        output_dir.string(), best.at_checkpoint.step, best.at_checkpoint.metric);
  if (!name.empty()) {
    best.checkpoint = name;
    return;
  }
  BestModel none;
  none.metric = best.metric;
  best = none;
}

void remove_earlier_run(const fs::path& output_dir, comm::Communicator& comm) {
  comm::agreed(comm, [&] {
    if (comm.rank() != 0) return;
    checkpoint::remove_ours(io::posix_storage(), output_dir);
    forget_stop(output_dir);
  });
}

void forget_stop(const fs::path& output_dir) {
  std::error_code ignored;
  fs::remove(output_dir / kStopFile, ignored);
}

void note_stop(const fs::path& output_dir, const fs::path& dir, comm::Communicator& comm) {
  comm::agreed(comm, [&] {
    if (comm.rank() != 0 || !fs::equivalent(dir.parent_path(), output_dir) || was_stopped_at(dir)) return;
    const json note{{"checkpoint", dir.filename().string()}, {"manifest", checkpoint::Manifest::read(dir).checksum}};
    try {
      io::atomic_write_file(io::posix_storage(), output_dir / kStopFile, note.dump(2) + "\n");
    } catch (const Error& e) {
      log::warn("cannot note in '{}' that the run stopped there ({}): to resume it, remove overwrite_output_dir", dir.string(),
                e.what());
    }
  });
}

}  // namespace qft::train
