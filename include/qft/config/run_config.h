// The configuration of a run: a RUN.yaml with LLaMA-Factory's key names and defaults, plus key=value overrides.
#pragma once

#include "qft/config/data_args.h"
#include "qft/config/finetuning_args.h"
#include "qft/config/generate_args.h"
#include "qft/config/model_args.h"
#include "qft/config/parallel_args.h"
#include "qft/config/stages.h"
#include "qft/config/training_args.h"
#include "qft/core/dtype.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace qft::config {

/// The program that will use a configuration. validate() requires the keys that this program needs; for `any` it checks only the
/// relations between keys.
enum class Purpose { any, pack, train, eval, generate, export_model, plan, check };

/// True if the programs of `purpose` use a trained adapter or model: they accept its folder and read its run's settings.
bool uses_models(Purpose purpose);

/// A number from an imported file or from a key of another tool. It is compared when the number of ranks or steps is known.
struct WorldClaim {
  /// whole_micro_batches: the samples of a step, which must divide into micro-batches on all data ranks.
  enum class Kind { ranks, data_ranks, global_batch, whole_micro_batches, steps } kind;
  std::int64_t value;
  std::string where;  // "accelerate.yaml:17: num_processes"
  bool operator==(const WorldClaim&) const = default;
};

struct RunConfig {
  ModelArgs model;
  DataArgs data;
  FinetuningArgs finetuning;
  TrainingArgs training;
  GenerateArgs generate;
  EvalArgs eval;
  ExportArgs exporting;
  ParallelArgs parallel;

  std::filesystem::path source;    ///< the run file; empty if built in memory
  std::vector<std::string> notes;  ///< logged once: keys without effect, values taken from other keys
  /// The keys that files and overrides set, with their source: "run.yaml:12", "command line".
  std::map<std::string, std::string, std::less<>> given;
  std::vector<WorldClaim> world_claims;
  /// Maps names in the run (on a hub, or on storage that is staged) to this node's folders. The map's key is the name as given;
  /// dataset names start with "dataset:". inputs::find() and inputs::stage() fill it.
  std::map<std::string, std::string, std::less<>> folders;

  /// Returns the row of finetuning.stage. Throws ConfigError if there is none.
  const Stage& stage() const { return stage_of(finetuning.stage).row_for(*this); }
  /// True if a file or an override set this key.
  bool is_given(std::string_view key) const { return given.find(key) != given.end(); }

  /// For each group, calls `group(title)` and then `field` for each of its keys.
  void visit(const std::function<void(std::string_view title)>& group, const FieldVisitor& field);

  /// Fills defaults that depend on other keys (lora_alpha, eval_steps, packing, data_seed, do_eval, ...). load_run_config() calls
  /// it; call it yourself after filling a RunConfig by hand. Idempotent.
  void resolve();

  /// Checks the relations between keys and the keys that `purpose` requires. Throws ConfigError with the keys, both values and
  /// the remedy.
  void validate(Purpose purpose = Purpose::any) const;

  /// Returns how many data ranks a job of `ranks` ranks has: those that get samples of their own. Throws ConfigError if
  /// tensor_parallel x context_parallel does not divide `ranks`, with the nearest degrees and numbers of ranks that fit.
  int data_ranks(int ranks) const;
  /// Checks the degrees against the ranks of a job as data_ranks() does, and compares imported numbers (num_processes,
  /// train_batch_size) with them. Throws ConfigError.
  void check_world(int ranks) const;
  /// Sets the degrees to 1, and removes imported numbers of data ranks: for a program that is one process, whatever the run
  /// file's training needs. Adds a note with the degrees that the file gives.
  void run_as_one_process();
  /// Replaces the degrees, also those from other tools' names and files, and forgets what these say about data ranks.
  void set_degrees(std::int64_t tensor, std::int64_t context);
  /// Compares imported numbers of steps (total_num_steps) with the run's steps. Throws ConfigError.
  void check_steps(std::int64_t total_steps) const;

  /// Returns the type of weights and compute: compute_dtype, else bf16 / fp16 / pure_bf16, else f32.
  DType compute_dtype() const;
  /// True if trainable weights have fp32 masters (bf16 or fp16 without pure_bf16).
  bool fp32_masters() const;
  /// True if backward recomputes activations: gradient_checkpointing, else LLaMA-Factory's default (on).
  bool recompute() const;
  /// True if max_memory is given and no other key decides about recomputation.
  bool may_choose_recompute() const;
  /// Returns the reason why a pair's sequences do not share their prompt's rows; empty if they share them.
  std::string_view unshared_prompts_reason() const;
  /// Returns this node's folder for `name` from `folders`, else `name` itself.
  const std::string& folder_of(const std::string& name) const;
  /// Returns the folder of model_name_or_path.
  const std::string& model_path() const { return folder_of(model.model_name_or_path); }
  /// Returns the folders of adapter_name_or_path; if adapter_folder is given, that sub-folder of each.
  std::vector<std::filesystem::path> adapter_paths() const;
  /// Returns the folder of tokenizer_name_or_path, else of model_name_or_path.
  const std::string& tokenizer_path() const;
};

/// If only an adapter is given, sets model_name_or_path to the base model in its adapter_config.json and adds a note.
void take_base_model_from_adapter(RunConfig& config);

/// Reads a .yaml, .yml or .json run file with qft's keys and applies `overrides` ("key=value", the later wins), then resolves and
/// validates. An empty `file` means no keys. Not collective. Throws ConfigError "file:line: key: expected ..., got ...".
/// qft/config/dialects.h has the same for run files with keys of other tools.
RunConfig load_run_config(const std::filesystem::path& file, std::span<const std::string> overrides = {},
                          Purpose purpose = Purpose::any);

/// Returns the effective configuration: every key, grouped, flat. load_run_config() of this text gives the same values.
std::string to_yaml(const RunConfig& config);

/// Returns the same as one flat JSON object (checkpoints keep this copy).
nlohmann::json to_json(const RunConfig& config);

/// Inverse of to_json(). Reads no other file and checks no relation. Throws ConfigError, naming `where`, for an unknown key or a
/// value of the wrong type.
RunConfig from_json(const nlohmann::json& json, std::string_view where);

}  // namespace qft::config
