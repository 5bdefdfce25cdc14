#include "qft/config/help.h"

#include "qft/config/bound_field.h"
#include "qft/config/dump.h"
#include "qft/config/nearest.h"
#include "qft/config/store.h"
#include "qft/core/error.h"
#include "qft/core/units.h"

#include <algorithm>
#include <initializer_list>
#include <unistd.h>

#include "help_parts.h"
#include "runnable.h"

namespace qft::config {
namespace {

using Names = std::initializer_list<const char*>;

/// The keys that the programs of a purpose read.
struct ProgramKeys {
  Purpose purpose;
  std::string_view programs;           // as the help names them
  Names groups;                        // groups that they read in full,
  std::initializer_list<Names> lists;  // lists of further keys that they read,
  Names keys;                          // and single ones
  Names except;                        // keys of `groups` that they do not read
  std::string_view sample;             // minimal run file, relative to the source tree's root; its keys are the required ones
};

constexpr Names kTrainingGroups = {"model", "method", "dataset", "train", "parallel", "eval", "generate"};
constexpr Names kNotInTraining = {"infer_dtype", "predict_logprobs", "prompt", "system"};
constexpr std::string_view kTrainingSample =
    "model_name_or_path: models/smollm2  # made by ./demo.sh\n"
    "template: smollm2\n"
    "dataset_dir: examples/data\n"
    "dataset: hpc_qa_train  # or pack: the file that qft-pack wrote\n"
    "output_dir: out\n";

constexpr Names kModelKeys = {"model_name_or_path", "model_revision",        "hub", "follow_links", "stage_to",
                              "stage_limit",        "tokenizer_name_or_path"};
constexpr Names kAdapterKeys = {"adapter_name_or_path", "adapter_folder", "infer_dtype"};
constexpr Names kQuantizationKeys = {"quantization_bit", "quantization_method", "quantization_type", "double_quantization"};
constexpr Names kComputeKeys = {"bf16", "fp16", "pure_bf16", "compute_dtype", "tf32", "use_cpu"};
constexpr Names kTemplateKeys = {"template",       "chat_template", "chat_template_kwargs",
                                 "default_system", "tool_format",   "enable_thinking"};

constexpr ProgramKeys kProgramKeys[] = {
    {Purpose::train, "qft train", kTrainingGroups, {}, {}, kNotInTraining, kTrainingSample},
    {Purpose::eval,
     "qft eval, qft score",
     {"dataset", "parallel", "eval", "generate"},
     {kModelKeys, kAdapterKeys, kQuantizationKeys, kComputeKeys},
     {"rope_scaling",
      "stage",
      "pref_loss",
      "pref_beta",
      "pref_ftx",
      "simpo_gamma",
      "rpo_alpha",
      "dpo_label_smoothing",
      "ld_alpha",
      "pref_bco_weight",
      "kto_chosen_weight",
      "kto_rejected_weight",
      "num_labels",
      "problem_type",
      "embedding_loss",
      "infonce_temperature",
      "infonce_use_batch",
      "infonce_hard_negatives",
      "infonce_mask_fake_negative",
      "infonce_fake_neg_margin",
      "infonce_mask_duplicates",
      "infonce_include_qq",
      "infonce_include_dd",
      "contrastive_margin",
      "mrl_dims",
      "reranker_type",
      "reranker_loss",
      "listwise_temperature",
      "listwise_min_group_size",
      "reranker_positive_token",
      "reranker_negative_token",
      "max_positive_samples",
      "max_negative_samples",
      "ref_model",
      "ref_model_adapters",
      "precompute_ref_log_probs",
      "share_prompts",
      "use_dft_loss",
      "use_eaft_loss",
      "eaft_alpha",
      "use_asft_loss",
      "asft_alpha",
      "compute_accuracy",
      "output_dir",
      "overwrite_output_dir",
      "per_device_eval_batch_size",
      "deterministic",
      "seed",
      "log_level",
      "ddp_timeout",
      "deepspeed",
      "fsdp",
      "fsdp_config",
      "accelerate_config"},
     {"prompt", "system", "use_curriculum", "curriculum_seed", "curriculum", "packing", "neat_packing", "offload_optimizer",
      "offload_activations"},
     "model_name_or_path: models/smollm2  # made by ./demo.sh\n"
     "template: smollm2\n"
     "dataset_dir: examples/data\n"
     "eval_dataset: cluster_questions  # or eval_pack, dataset, pack\n"
     "output_dir: out\n"},
    {Purpose::generate,
     "qft generate, qft chat",
     {"generate"},
     {kModelKeys, kAdapterKeys, kQuantizationKeys, kComputeKeys, kTemplateKeys},
     {"rope_scaling", "cutoff_len", "dataset_dir", "stage", "per_device_eval_batch_size", "overwrite_output_dir", "seed",
      "log_level", "ddp_timeout", "tensor_parallel", "context_parallel"},
     {},
     "model_name_or_path: models/smollm2  # made by ./demo.sh\n"
     "template: smollm2\n"},
    {Purpose::export_model,
     "qft export",
     {"export"},
     {kModelKeys, kAdapterKeys, kTemplateKeys},
     {"rope_scaling", "cutoff_len", "log_level", "preserve_thinking", "mask_history"},
     {},
     "model_name_or_path: models/smollm2  # made by ./demo.sh\n"
     "adapter_name_or_path: demo_output/tuned\n"
     "export_dir: exported\n"},
    {Purpose::plan,
     "qft plan",
     kTrainingGroups,
     {},
     {},
     kNotInTraining,
     "model_name_or_path: models/smollm2  # its config.json is enough\n"
     "cutoff_len: 512\n"},
    {Purpose::check, "qft check", kTrainingGroups, {}, {}, kNotInTraining, kTrainingSample},
    {Purpose::pack,
     "qft-pack",
     {"dataset"},
     {kModelKeys},
     {"stage", "seed", "log_level", "ddp_timeout"},
     {"pack", "eval_pack", "val_size", "eval_on_each_dataset", "use_curriculum", "curriculum_seed", "curriculum", "packing",
      "neat_packing"},
     "model_name_or_path: models/smollm2  # or tokenizer_name_or_path\n"
     "template: smollm2\n"
     "dataset_dir: examples/data\n"
     "dataset: hpc_qa_train\n"},
};

const ProgramKeys* program_keys_of(Purpose purpose) {
  const auto row = std::ranges::find(kProgramKeys, purpose, &ProgramKeys::purpose);
  return row == std::end(kProgramKeys) ? nullptr : row;
}

bool has(Names names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

bool is_required(const ProgramKeys& program, std::string_view key) {
  return fmt::format("\n{}", program.sample).find(fmt::format("\n{}:", key)) != std::string::npos;
}

bool is_read(const ProgramKeys& program, const BoundField& bound) {
  if (has(program.except, bound.field.name)) return false;
  const auto in = [&](Names list) { return has(list, bound.field.name); };
  return has(program.groups, bound.group) || std::ranges::any_of(program.lists, in) || in(program.keys);
}

std::string line_of(const BoundField& bound, const std::vector<std::string_view>& missing) {
  std::string words;
  for (const std::string_view word : bound.field.choices)
    words += fmt::format("{}{}{}", words.empty() ? ": " : " | ", word,
                         std::ranges::find(missing, word) == missing.end() ? "" : " (not implemented)");
  constexpr std::size_t kIndent = 35;  // start of the second column
  const std::string line = fmt::format("  {:<32} {}{} [{}]", bound.field.name, bound.field.help, words, default_of(bound));
  return wrapped(line, kIndent, static_cast<std::size_t>(terminal_columns(STDOUT_FILENO))) + "\n";
}

std::string describe_own(const BoundField& bound, const Dialects& dialects) {
  std::string text = fmt::format("{}: {}\n  value    {}\n  default  {}\n", bound.field.name, bound.field.help, values_of(bound),
                                 default_of(bound));
  if (!bound.field.advice.empty()) text += fmt::format("  advice   {}\n", bound.field.advice);
  text += fmt::format("  read by  {}\n", readers_of(bound));
  if (const auto names = dialects.names_of(bound.field.name); !names.empty())
    text += fmt::format("  also     {} of other tools\n", fmt::join(names, ", "));
  if (const auto names = dialects.launcher_names_of(bound.field.name); !names.empty())
    text += fmt::format("  in files {} of launchers\n", fmt::join(names, ", "));
  return text;
}

std::string wrap_lines(const std::string& text) {
  constexpr std::size_t kIndent = 11;
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    out +=
        wrapped(std::string_view(text).substr(at, end - at), kIndent, static_cast<std::size_t>(terminal_columns(STDOUT_FILENO))) +
        "\n";
    at = end + 1;
  }
  return out;
}

}  // namespace

std::string default_of(const BoundField& bound) {
  if (!bound.field.default_text.empty()) return std::string(bound.field.default_text);
  const nlohmann::json value = field_value(bound.field, bound.ref);
  if (value.is_null()) return "none";
  if (value.is_string()) return value;
  if (!value.is_array()) return value.dump();
  std::string list;
  for (const auto& item : value) {
    if (!list.empty()) list += ',';
    list += item.is_string() ? item.get<std::string>() : item.dump();
  }
  return list;
}

std::string values_of(const BoundField& bound) {
  const auto missing = not_implemented(bound.field.name, Purpose::train);
  if (std::ranges::find(missing, "") != missing.end()) return "the default only: other values are not implemented";
  std::string text = expected(bound.field, bound.ref);
  if (!missing.empty()) text += fmt::format("; not implemented: {}", fmt::join(missing, ", "));
  return text;
}

std::vector<std::string_view> implemented_values(const BoundField& bound) {
  std::vector<std::string_view> words = bound.field.choices;
  const auto missing = not_implemented(bound.field.name, Purpose::train);
  std::erase_if(words, [&](std::string_view word) { return std::ranges::find(missing, word) != missing.end(); });
  return words;
}

std::string readers_of(const BoundField& bound) {
  std::string readers;
  for (const ProgramKeys& program : kProgramKeys)
    if (is_read(program, bound)) readers += fmt::format("{}{}", readers.empty() ? "" : ", ", program.programs);
  return readers;
}

bool reads_key(Purpose purpose, const BoundField& bound) {
  const ProgramKeys* program = program_keys_of(purpose);
  return program == nullptr || is_read(*program, bound);
}

std::string_view sample_run_file(Purpose purpose) {
  const ProgramKeys* program = program_keys_of(purpose);
  return program == nullptr ? std::string_view() : program->sample;
}

bool reads_key(Purpose purpose, std::string_view key) {
  if (purpose == Purpose::any) return true;
  RunConfig defaults;
  const auto fields = bound_fields(defaults);
  const BoundField* bound = find_field(fields, key);
  return bound != nullptr && reads_key(purpose, *bound);
}

std::vector<std::string_view> implemented_values(std::string_view key) {
  RunConfig defaults;
  const auto fields = bound_fields(defaults);
  const BoundField* bound = find_field(fields, key);
  QFT_ASSERT(bound != nullptr, "'{}' is not a key", key);
  return implemented_values(*bound);
}

std::string describe_key(std::string_view name, const Dialects& dialects) {
  std::string key(name.substr(name.starts_with("--") ? 2 : 0));
  std::ranges::replace(key, '-', '_');
  RunConfig defaults;
  const auto fields = bound_fields(defaults);
  if (const BoundField* own = find_field(fields, key)) return wrap_lines(describe_own(*own, dialects));
  if (const auto foreign = dialects.find(key)) {
    std::string text = dialects.describe(key);
    if (const BoundField* own = find_field(fields, foreign->own)) text += "\n" + describe_own(*own, dialects);
    return wrap_lines(text);
  }
  std::vector<std::string_view> names;
  for (const BoundField& bound : fields) names.push_back(bound.field.name);
  std::string containing;  // for example, "lora" is part of many keys
  for (const std::string_view name : names)
    if (name.find(key) != std::string_view::npos) containing += fmt::format("{}{}", containing.empty() ? "" : ", ", name);
  if (!containing.empty()) fail_config("qft help: there is no key '{}'; keys with this text are {}", key, containing);
  fail_config("qft help: there is no key '{}'{}", key, suggestion(key, names, "qft train --help lists the keys of training"));
}

std::string help_text(Purpose purpose) {
  RunConfig defaults;
  const ProgramKeys* program = program_keys_of(purpose);
  const bool trains = purpose == Purpose::plan || purpose == Purpose::check;
  std::string required, rest, missing, group;
  for (const BoundField& bound : bound_fields(defaults)) {
    if (program != nullptr && !is_read(*program, bound)) continue;
    const auto values = not_implemented(bound.field.name, trains ? Purpose::train : purpose);
    const std::string line = line_of(bound, values);
    if (program != nullptr && is_required(*program, bound.field.name)) {
      required += line;
    } else if (std::ranges::find(values, "") != values.end()) {
      missing += line;
    } else {
      if (bound.group != group) rest += fmt::format("{}{}\n", rest.empty() ? "" : "\n", bound.group);
      group = bound.group;
      rest += line;
    }
  }
  std::string out;
  if (program != nullptr) out = fmt::format("A minimal run file:\n\n{}\nits keys\n{}\n", program->sample, required);
  out += rest;
  if (!missing.empty())
    out += fmt::format(
        "\n"
        "not implemented (a value other than the default is an error):\n"
        "{}",
        missing);
  return out;
}

}  // namespace qft::config
