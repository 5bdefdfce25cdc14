// The configuration of a run: a RUN.yaml with LLaMA-Factory's key names and defaults, plus key=value overrides.
#pragma once

#include "qft/config/data_args.h"
#include "qft/config/finetuning_args.h"
#include "qft/config/generate_args.h"
#include "qft/config/model_args.h"
#include "qft/config/parallel_args.h"
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

/// What a configuration is about to be used for: validate() asks for the keys which that needs.
/// `any` checks the relations between keys only.
enum class Purpose { any, pack, train, eval, generate, export_model, plan, check };

/// A number in an imported file that is compared once the ranks, or the steps of the run, are known.
struct WorldClaim {
  enum class Kind { ranks, global_batch, steps } kind;
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

  std::filesystem::path source;    ///< the run file; empty for a configuration built in memory
  std::vector<std::string> notes;  ///< for the log, once: keys without effect here, values taken from other keys
  /// The keys that files and overrides set, and where: "run.yaml:12", "command line".
  std::map<std::string, std::string, std::less<>> given;
  std::vector<WorldClaim> world_claims;
  /// Where this node has what the run names elsewhere: on a hub, or on storage that it is staged from. By the name as given;
  /// that of a dataset with "dataset:" before it. Filled by inputs::find() and inputs::stage().
  std::map<std::string, std::string, std::less<>> folders;

  /// True where a file or an override set this key.
  bool is_given(std::string_view key) const { return given.find(key) != given.end(); }

  /// Calls `group(title)` and then `field` for each key of that group, over all groups.
  void visit(const std::function<void(std::string_view title)>& group, const FieldVisitor& field);

  /// Fills the defaults that depend on other keys (lora_alpha, eval_steps, packing, data_seed, do_eval, ...).
  /// load_run_config() has called it; call it after filling a RunConfig by hand. Idempotent.
  void resolve();

  /// Checks the relations between keys, and that `purpose` has the keys it needs. Throws ConfigError naming
  /// the keys, both values and the way out.
  void validate(Purpose purpose = Purpose::any) const;

  /// Holds imported numbers (num_processes, train_batch_size) against the ranks that run. Throws ConfigError.
  void check_world(int world_size) const;
  /// Compares imported numbers of steps (total_num_steps) with those of the run. Throws ConfigError.
  void check_steps(std::int64_t total_steps) const;

  /// The type of weights and compute: compute_dtype, else bf16 / fp16 / pure_bf16, else f32.
  DType compute_dtype() const;
  /// True where trainable weights keep fp32 masters (bf16 or fp16 without pure_bf16).
  bool fp32_masters() const;
  /// True where activations are recomputed in backward: gradient_checkpointing, else LLaMA-Factory's default, on.
  bool recompute() const;
  /// True where max_memory is given, and no other key says whether activations are recomputed.
  bool chooses_recompute() const;
  /// Why the sequences of a pair do not share the rows of their prompt; empty: they do.
  std::string_view prompts_apart() const;
  /// Where this node has `name`: of `folders`, else the name itself.
  const std::string& folder_of(const std::string& name) const;
  /// The folder of model_name_or_path.
  const std::string& model_path() const { return folder_of(model.model_name_or_path); }
  /// The folders of adapter_name_or_path, in each adapter_folder if that is given.
  std::vector<std::filesystem::path> adapter_paths() const;
  /// The folder of tokenizer_name_or_path, else of model_name_or_path.
  const std::string& tokenizer_path() const;
};

/// Where only an adapter is given: takes the base model that its adapter_config.json names, and notes it.
void take_base_of_adapter(RunConfig& config);

/// Reads a .yaml, .yml or .json run file and then `overrides` ("key=value", the later wins), imports what its
/// deepspeed / fsdp / accelerate_config keys point to, resolves and validates. Not collective.
/// An empty `file` stands for one without keys. Throws ConfigError "file:line: key: expected ..., got ...".
RunConfig load_run_config(const std::filesystem::path& file, std::span<const std::string> overrides = {},
                          Purpose purpose = Purpose::any);

/// The effective configuration: every key, grouped, flat. load_run_config() of the text gives the same values.
std::string to_yaml(const RunConfig& config);

/// The same as one flat JSON object (the copy that checkpoints keep).
nlohmann::json to_json(const RunConfig& config);

/// Inverse of to_json(); reads no other file and checks no relation. Throws ConfigError for a key that is
/// unknown or a value of the wrong type, naming `where`.
RunConfig from_json(const nlohmann::json& json, std::string_view where);

}  // namespace qft::config
