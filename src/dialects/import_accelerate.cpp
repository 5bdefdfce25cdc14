#include "qft/config/bound_field.h"
#include "qft/config/expand_path.h"
#include "qft/core/error.h"
#include "qft/core/file_ending.h"

#include <algorithm>
#include <sstream>

#include "degrees.h"
#include "import_table.h"

namespace qft::dialects {
namespace {

constexpr std::string_view kLaunch = "mpirun or srun places the ranks";

// Keys of an accelerate file outside fsdp_config.
constexpr Renamed kAccelerateMatches[] = {
    {{"use_cpu"}, "use_cpu"},
    {{"gradient_accumulation_steps", "deepspeed_config.gradient_accumulation_steps"}, "gradient_accumulation_steps"},
    {{"gradient_clipping", "deepspeed_config.gradient_clipping"}, "max_grad_norm"},
};

constexpr NoEffect kAccelerateNoEffect[] = {
    {{"machine_rank", "num_machines", "main_process_ip", "main_process_port", "rdzv_backend", "same_network", "gpu_ids",
      "mpirun_config.*", "main_training_function", "enable_cpu_affinity", "command_file", "commands", "tpu_name", "tpu_zone",
      "tpu_vm", "tpu_env"},
     kLaunch},
    {{"debug", "use_parallelism_config", "downcast_bf16", "dynamo_backend", "dynamo_config.*", "fp8_config.*", "ipex_config.*"},
     "they concern accelerate's own machinery"},
    {{"deepspeed_config.*"}, "they concern DeepSpeed's own machinery"},
};

constexpr Refused kAccelerateRefused[] = {
    {{"compute_environment"}, "qft runs where mpirun starts it", {"LOCAL_MACHINE"}},
    {{"megatron_lm_config.*"}, "it is not implemented: remove the section", {"0", "1"}},
    {{"tpu_use_cluster", "tpu_use_sudo"}, "there are no TPUs here", {"false"}},
};

constexpr ImportTables kAccelerateKeys = {
    .file = "accelerate",
    .matches = kAccelerateMatches,
    .collect = {"distributed_type", "mixed_precision", "deepspeed_config.deepspeed_config_file", "deepspeed_config.zero_stage",
                "deepspeed_config.offload_optimizer_device", "deepspeed_config.offload_param_device"},
    .ranks = {"num_processes"},
    .no_effect = kAccelerateNoEffect,
    .refused = kAccelerateRefused};

constexpr std::initializer_list<Word> kOneIsNone = {{"1", "null"}};  // accelerate's default

// Keys of parallelism_config, without this prefix.
constexpr Renamed kParallelismMatches[] = {
    {{"tp_size"}, "tensor_parallel", kOneIsNone},
    {{"cp_size", "sp_size"}, "context_parallel", kOneIsNone},
};

constexpr NoEffect kParallelismNoEffect[] = {
    {{"cp_backend", "cp_handler", "cp_comm_strategy", "sp_backend", "sp_handler", "sp_seq_length", "sp_seq_length_is_variable",
      "sp_attn_implementation"},
     "context ranks exchange the heads of attention, with the same result"},
};

constexpr ImportTables kParallelismKeys = {.file = "accelerate",
                                           .section = "parallelism_config.",
                                           .matches = kParallelismMatches,
                                           .collect = {"dp_replicate_size", "dp_shard_size"},
                                           .no_effect = kParallelismNoEffect};

// Keys of fsdp_config. accelerate writes them with the prefix "fsdp_", transformers without it.
constexpr NoEffect kFsdpNoEffect[] = {
    {{"auto_wrap_policy", "transformer_layer_cls_to_wrap", "min_num_params", "backward_prefetch", "backward_prefetch_policy",
      "forward_prefetch", "cpu_ram_efficient_loading", "sync_module_states", "use_orig_params", "limit_all_gathers",
      "state_dict_type", "ignored_modules"},
     "qft shards by the model's layers and plans their transfers"},
};

constexpr Refused kFsdpRefused[] = {
    {{"version"}, "allowed are FSDP versions 1 and 2", {"1", "2"}},
    {{"xla", "xla_fsdp_settings", "xla_fsdp_grad_ckpt", "xla_fsdp_v2"}, "there are no TPUs here", {"false"}},
};

constexpr ImportTables kFsdpKeys = {.collect = {"sharding_strategy", "offload_params", "reshard_after_forward",
                                                "activation_checkpointing", "activation_cpu_offload"},
                                    .no_effect = kFsdpNoEffect,
                                    .refused = kFsdpRefused};

using Leaves = std::map<std::string, Leaf, std::less<>>;

const Leaf* find(const Leaves& leaves, std::string_view path) {
  const auto found = leaves.find(path);
  return found == leaves.end() ? nullptr : &found->second;
}

// Removes the prefix from the keys of the section.
Value without_prefix(const Value& section, std::string_view prefix = "fsdp_") {
  Value bare = section;
  for (auto& [key, value] : bare.entries) {
    if (key.starts_with(prefix)) key.erase(0, prefix.size());
  }
  return bare;
}

// Compares the data ranks. Returns the ranks that share a copy if the data ranks are groups of them, else nullptr.
const Leaf* match_parallelism(RunConfig& config, const Leaves& leaves) {
  const Leaf *replicate = find(leaves, "dp_replicate_size"), *shard = find(leaves, "dp_shard_size");
  if (replicate == nullptr && shard == nullptr) return nullptr;
  config.world_claims.push_back(data_ranks_claim(replicate, shard));
  return degree_of(replicate) > 1 && degree_of(shard) > 1 ? shard : nullptr;
}

// Returns qft's name for a sharding strategy of torch. accelerate also accepts numbers.
std::string sharding_strategy(const Leaf& leaf) {
  std::string word = leaf.value.text;
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  if (word == "1" || word == "full_shard") return "zero3";
  if (word == "2" || word == "shard_grad_op") return "shard_grad_op";
  if (word == "3" || word == "no_shard") return "ddp";
  if (word == "4" || word == "hybrid_shard" || word == "5" || word == "hybrid_shard_zero2") return "hsdp";
  fail_config("{}: expected one of FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD, HYBRID_SHARD_ZERO2, got {}", leaf.where,
              describe(leaf.value));
}

bool flag_of(const Leaf& leaf) {
  const auto flag = as_bool(leaf.value);
  if (!flag) fail_config("{}: expected true or false, got {}", leaf.where, describe(leaf.value));
  return *flag;
}

// FSDP 2 gives only a flag: whether to reshard weights after forward. transformers also accepts FSDP 1's strategies here.
std::string reshard_strategy(const Leaf& leaf) {
  const auto flag = as_bool(leaf.value);
  if (!flag) return sharding_strategy(leaf);
  return *flag ? "zero3" : "shard_grad_op";
}

// `group`: of match_parallelism().
void match_sharding(RunConfig& config, const Leaves& leaves, const Leaf& whole, const Leaf* group) {
  const Leaf* named = find(leaves, "sharding_strategy");
  const Leaf* reshard = find(leaves, "reshard_after_forward");
  if (group != nullptr) {
    match_key(config, "hsdp_group_size", group->value, *group);
    return match_strategy(config, "hsdp", *group);
  }
  if (named == nullptr) {
    return match_strategy(config, reshard != nullptr ? reshard_strategy(*reshard) : "zero3",
                          reshard != nullptr ? *reshard : whole);
  }
  const std::string strategy = sharding_strategy(*named);
  const bool hybrid = strategy == "hsdp";
  if (reshard != nullptr && reshard_strategy(*reshard) != (hybrid ? "zero3" : strategy)) {
    fail_config("{} is {}, but {} is {}: make them agree or remove one", named->where, describe(named->value), reshard->where,
                describe(reshard->value));
  }
  match_strategy(config, strategy, *named);
  if (hybrid && (named->value.text == "5" || named->value.text.size() > std::string_view("hybrid_shard").size())) {
    config.notes.push_back(
        fmt::format("{}: qft reshards weights after forward, as with HYBRID_SHARD: same results, less memory", named->where));
  }
}

void match_fsdp(RunConfig& config, const Leaves& leaves, const Leaf& whole, const Leaf* group = nullptr) {
  match_sharding(config, leaves, whole, group);
  if (const Leaf* offload = find(leaves, "offload_params"); offload != nullptr && flag_of(*offload)) {
    // With parameters on the CPU, FSDP also keeps gradients and the optimizer there.
    match_key(config, "offload_param", plain("cpu"), *offload);
    match_key(config, "offload_optimizer", plain("cpu"), *offload);
  }
  // A false flag sets nothing: transformers may recompute even if FSDP does not.
  if (const Leaf* recompute = find(leaves, "activation_checkpointing"); recompute != nullptr && flag_of(*recompute)) {
    // transformers refuses both at once, so gradient_checkpointing: false leaves recomputation to FSDP.
    if (config.training.gradient_checkpointing == false) {
      config.training.gradient_checkpointing.reset();
      config.given.erase("gradient_checkpointing");
      config.notes.push_back(
          fmt::format("{}: activations are recomputed: gradient_checkpointing: false leaves this to FSDP's "
                      "activation_checkpointing, which is true",
                      recompute->where));
    }
    match_key(config, "gradient_checkpointing", plain("true"), *recompute);
  }
  if (const Leaf* offload = find(leaves, "activation_cpu_offload"); offload != nullptr && flag_of(*offload)) {
    match_key(config, "offload_activations", plain("cpu"), *offload);
  }
}

void match_precision(RunConfig& config, const Leaf& leaf) {
  const std::string& word = leaf.value.text;
  const bool none = as_bool(leaf.value) == false || word == "no";
  if (!none && word != "bf16" && word != "fp16") {
    fail_config("{}: expected one of no, bf16, fp16, got {}", leaf.where, describe(leaf.value));
  }
  if (none) return;  // as in transformers, the run file decides
  if (config.training.pure_bf16 && word == "bf16") return;
  match_key(config, word, plain("true"), leaf);
}

void match_deepspeed(RunConfig& config, const Leaves& leaves) {
  if (const Leaf* file = find(leaves, "deepspeed_config.deepspeed_config_file")) {
    import_deepspeed_named(config, file->value.text, file->where);
  }
  if (const Leaf* stage = find(leaves, "deepspeed_config.zero_stage")) match_zero_stage(config, *stage);
  if (const Leaf* device = find(leaves, "deepspeed_config.offload_optimizer_device")) {
    match_key(config, "offload_optimizer", device->value, *device);
  }
  if (const Leaf* device = find(leaves, "deepspeed_config.offload_param_device")) {
    match_key(config, "offload_param", device->value, *device);
  }
}

// Removes the entry from the document.
Value take_entry(Value& document, std::string_view name) {
  const auto at = std::find_if(document.entries.begin(), document.entries.end(), [&](const auto& e) { return e.first == name; });
  if (at == document.entries.end()) return {};
  Value value = std::move(at->second);
  document.entries.erase(at);
  return value;
}

// Removes a section from the document if distributed_type does not use it, or if it is read separately (`by_itself`).
Value take_section(RunConfig& config, Value& document, std::string_view file, std::string_view name, std::string_view type,
                   bool by_itself) {
  const auto at = [&](std::string_view key) {
    return std::find_if(document.entries.begin(), document.entries.end(), [&](const auto& entry) { return entry.first == key; });
  };
  const auto section = at(name), chosen = at("distributed_type");
  if (section == document.entries.end()) return {};
  const bool used = chosen != document.entries.end() && chosen->second.text == type;
  if (used && !by_itself) return {};
  Value value = std::move(section->second);
  document.entries.erase(section);
  if (used && value.kind != Value::Kind::map && value.kind != Value::Kind::null) {
    fail_config("{}:{}: {}: expected a mapping of keys to values, got {}", file, value.line, name, describe(value));
  }
  if (used) return value;
  if (!value.entries.empty()) {
    config.notes.push_back(fmt::format("{}:{}: {} has no effect: distributed_type is not {}", file, value.line, name, type));
  }
  return {};
}

// Reads ms-swift's file with both keys: {"fsdp": "full_shard", "fsdp_config": {...}}. Keys that begin with _ are comments.
void read_fsdp_file(RunConfig& config, const std::string& file) {
  const Value document = parse_file(file);
  if (document.kind != Value::Kind::map || document.entries.empty())
    fail_config("{}: expected an object with fsdp and fsdp_config, got {}", file,
                document.kind == Value::Kind::map ? "an empty one" : describe(document));
  nlohmann::json options = "full_shard";
  for (const auto& [key, value] : document.entries) {
    if (key == "fsdp") {
      options = as_json(value);
    } else if (key == "fsdp_config") {
      config.training.fsdp_config = as_json(value);
    } else if (!key.starts_with('_')) {
      fail_config("{}:{}: {}: unknown key: allowed are fsdp and fsdp_config", file, value.line, key);
    }
  }
  config.training.fsdp = options;
}

}  // namespace

void import_accelerate(RunConfig& config, const std::string& file) {
  Value document = parse_file(file);
  const Value fsdp = without_prefix(take_section(config, document, file, "fsdp_config", "FSDP", true));
  take_section(config, document, file, "deepspeed_config", "DEEPSPEED", false);
  const Value mesh = without_prefix(take_entry(document, "parallelism_config"), "parallelism_config_");
  const Leaves leaves = import_keys(config, document, file, false, kAccelerateKeys);
  const Leaves degrees = mesh.kind == Value::Kind::null ? Leaves{} : import_keys(config, mesh, file, false, kParallelismKeys);
  const Leaf* group = match_parallelism(config, degrees);
  if (const Leaf* precision = find(leaves, "mixed_precision")) match_precision(config, *precision);
  const Leaf* type = find(leaves, "distributed_type");
  if (type == nullptr) fail_config("{}: distributed_type is missing: accelerate requires it", file);
  const std::string& word = type->value.text;
  if (as_bool(type->value) == false || word == "NO" || word == "MULTI_GPU" || word == "MULTI_CPU") {
    match_strategy(config, "ddp", *type);
  } else if (word == "FSDP") {
    const bool empty = fsdp.kind == Value::Kind::null;
    match_fsdp(config, empty ? Leaves{} : import_keys(config, fsdp, file, false, kFsdpKeys), *type, group);
  } else if (word == "DEEPSPEED") {
    match_deepspeed(config, leaves);
  } else {
    fail_config("{}: expected one of NO, MULTI_GPU, MULTI_CPU, FSDP, DEEPSPEED, got {}", type->where, describe(type->value));
  }
}

const ImportTables& accelerate_keys() {
  return kAccelerateKeys;
}

const ImportTables& parallelism_keys() {
  return kParallelismKeys;
}

void import_fsdp(RunConfig& config) {
  const std::string where = at_key(config, "fsdp");
  if (const auto& named = config.training.fsdp; named.is_string() && is_json_file(named.get<std::string>())) {
    read_fsdp_file(config, config::expand_path(named.get<std::string>(), where));
  }
  const nlohmann::json& options = config.training.fsdp;
  std::string text = options.is_string() ? options.get<std::string>() : "";
  if (options.is_array()) {
    for (const auto& item : options) text += item.is_string() ? item.get<std::string>() + " " : item.dump() + " ";
  }
  if (is_yaml_file(text)) return import_accelerate(config, config::expand_path(text, where));

  Leaves leaves;
  const nlohmann::json& more = config.training.fsdp_config;
  const std::string more_where = at_key(config, "fsdp_config");
  if (more.is_string()) {
    const std::string file = config::expand_path(more.get<std::string>(), more_where);
    leaves = import_keys(config, without_prefix(parse_file(file)), file, false, kFsdpKeys);
  } else if (!more.is_null()) {
    const Value section = without_prefix(parse_json(more.dump(), more_where));
    leaves = import_keys(config, section, more_where, true, kFsdpKeys);
  }
  const Leaf whole{"fsdp", plain(text), where, where};
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    Leaf leaf = whole;
    if (word == "auto_wrap") continue;
    leaf.path = word == "offload" ? "offload_params" : "sharding_strategy";
    leaf.value = plain(word == "offload" ? "true" : word);
    leaves.insert_or_assign(leaf.path, leaf);
  }
  if (!text.empty() || options == true) return match_fsdp(config, leaves, whole);
  fail_config("{}: expected words such as full_shard, or an accelerate YAML file, got {}", where, options.dump());
}

}  // namespace qft::dialects
