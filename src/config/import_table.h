// Reading foreign launcher files (DeepSpeed JSON, accelerate YAML) by a table of their keys.
#pragma once

#include "qft/config/run_config.h"

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "value.h"

namespace qft::config {

/// A key of such a file, or several with one meaning (separated by blanks). Nested keys are written with
/// dots; "name.*" stands for all that is below name and has no row of its own.
struct ImportKey {
  enum class Role {
    matches,    // says the same as the run file's key `with`: must agree with it, or sets it where that is not
                // given
    collect,    // interpreted by the importer once all keys are read
    batch,      // samples in a global batch: known when the ranks are
    ranks,      // number of ranks
    no_effect,  // without effect here; `with` says why
    refused,    // refused unless harmless; `with` says why
  };
  Role role;
  std::string_view paths;
  std::string_view with;
  std::string_view harmless = {};  // refused: values that ask for nothing, as "null|false"
};

/// A key that has a value of its own (not a mapping) in a file.
struct Leaf {
  std::string path;
  Value value;
  std::string where;   // "ds.json:7: zero_optimization.stage"
  std::string source;  // "ds.json:7"
};

/// Reads `document` by `table` into `config` and returns the collected leaves by path. `file` names the
/// document; `inlined`: it stands inside the run file, so that its line numbers mean nothing. Throws
/// ConfigError for unknown and refused keys and for contradictions with the run file.
std::map<std::string, Leaf, std::less<>> import_keys(RunConfig& config, const Value& document, std::string_view file,
                                                     bool inlined, std::span<const ImportKey> table);

/// Makes the run file's `key` equal to `value`, or throws ConfigError with both values where it says otherwise.
void match_key(RunConfig& config, std::string_view key, const Value& value, const Leaf& leaf);

/// The same for `strategy`, which has two names for some things.
void match_strategy(RunConfig& config, const std::string& strategy, const Leaf& leaf);

/// The same for a ZeRO stage, 0 to 3.
void match_zero_stage(RunConfig& config, const Leaf& leaf);

/// Keeps a number that is compared once the ranks or the steps are known. Numbers may be written as texts.
void claim(RunConfig& config, WorldClaim::Kind kind, const Leaf& leaf);

/// A plain scalar, for match_key().
Value plain(std::string_view text);

/// Imports what deepspeed, fsdp, fsdp_config and accelerate_config name. Reads files.
void import_launchers(RunConfig& config);

/// Imports one DeepSpeed document (see import_keys for the arguments).
void import_deepspeed(RunConfig& config, const Value& document, std::string_view file, bool inlined);

/// Imports the DeepSpeed file, or the built-in configuration (zero0 ... zero3_offload), that the text `name` stands for.
void import_deepspeed_named(RunConfig& config, const nlohmann::json& name, std::string_view where);

/// Imports one accelerate configuration file.
void import_accelerate(RunConfig& config, const std::string& file);

/// Imports the options of `fsdp:` with the mapping of `fsdp_config:`, as transformers understands them.
void import_fsdp(RunConfig& config);

}  // namespace qft::config
