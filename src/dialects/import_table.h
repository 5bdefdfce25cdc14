// Imports launcher files of other tools (DeepSpeed JSON, accelerate YAML) by tables of their keys.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config_names.h"
#include "key_rows.h"

namespace qft::dialects {

/// The keys of such a file by their meaning. Dots separate nested keys. "name.*" matches all keys below `name` that have no row.
struct ImportTables {
  std::string_view file = {};             // the tool whose file it is, for help
  std::string_view section = {};          // the keys' section in this file
  std::span<const Renamed> matches = {};  // mean a key of the run file: must agree with it, or set it if it is not given
  Names collect = {};                     // the importer interprets them after reading all keys
  Names batch = {};                       // samples in a global batch: checked when the number of ranks is known
  Names ranks = {};                       // number of ranks
  std::span<const NoEffect> no_effect = {};
  std::span<const Refused> refused = {};
};

/// A key in a file with a value that is not a mapping.
struct Leaf {
  std::string path;
  Value value;
  std::string where;   // "ds.json:7: zero_optimization.stage"
  std::string source;  // "ds.json:7"
};

/// Reads `document` into `config` by `tables` and returns the collected leaves by path. `file` names the document. `inlined`: the
/// document is part of the run file, so its line numbers are meaningless. Throws ConfigError for unknown and refused keys and for
/// contradictions with the run file.
std::map<std::string, Leaf, std::less<>> import_keys(RunConfig& config, const Value& document, std::string_view file,
                                                     bool inlined, const ImportTables& tables);

/// Sets the run file's `key` to `value`. If the run file has another value, throws ConfigError with both.
void match_key(RunConfig& config, std::string_view key, const Value& value, const Leaf& leaf);

/// The same for `strategy`, in which some values have two names.
void match_strategy(RunConfig& config, const std::string& strategy, const Leaf& leaf);

/// The same for a ZeRO stage, 0 to 3.
void match_zero_stage(RunConfig& config, const Leaf& leaf);

/// Records a number for comparison when the ranks or the steps are known. The number may be a text.
void add_claim(RunConfig& config, WorldClaim::Kind kind, const Leaf& leaf);

/// Returns a plain scalar for match_key().
Value plain(std::string_view text);

/// Imports the configurations that deepspeed, fsdp, fsdp_config and accelerate_config name. Reads files.
void import_launchers(RunConfig& config);

/// The tables by which these files are read.
const ImportTables& deepspeed_keys();
const ImportTables& accelerate_keys();
const ImportTables& parallelism_keys();

/// Returns the names that keys of launchers' files have for the run file's key `own`: "optimizer.params.lr (DeepSpeed)".
std::vector<std::string> launcher_names_of(std::string_view own);

/// Imports one DeepSpeed document. import_keys() explains the arguments.
void import_deepspeed(RunConfig& config, const Value& document, std::string_view file, bool inlined);

/// Imports the DeepSpeed file or the built-in configuration (zero0 ... zero3_offload) with the given name.
void import_deepspeed_named(RunConfig& config, const nlohmann::json& name, std::string_view where);

/// Imports one accelerate configuration file.
void import_accelerate(RunConfig& config, const std::string& file);

/// Imports the options of `fsdp:` with the mapping of `fsdp_config:`, with transformers' meaning.
void import_fsdp(RunConfig& config);

}  // namespace qft::dialects
