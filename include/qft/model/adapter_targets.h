// Which modules an adapter wraps, whatever its kind, as PEFT's target_modules and modules_to_save say it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qft::model {

struct AdapterTargets {
  const char* key = "lora_target";  ///< of run files, as errors name it
  std::string origin = {};          ///< adapter_config.json that says it; empty: a run file
  /// With which the adapter's files begin the names of the decoder's modules; empty: as the model does. Expressions and paths
  /// are for such names, and files that are written keep them.
  std::string text_prefix = {};
  /// Modules by their names, or by the ends of their paths: those of lora_modules() in that order, then paths.
  std::vector<std::string> targets;
  bool all_linear = false;               ///< the list was `all`
  std::string target_pattern = {};       ///< not empty: those whose whole name this regular expression matches, and no others
  std::vector<std::string> absent = {};  ///< that the adapter's file lists, and the model does not have
  /// Modules that train in full beside the adapter, and are saved with it (PEFT's modules_to_save).
  std::vector<std::string> modules_to_save = {};
  /// Of the classifier that it is the adapter of (PEFT's task_type SEQ_CLS), whose head it has beside these; 0: it is of none.
  std::int64_t labels = 0;

  bool targets_module(std::string_view name) const;
  /// The name of a module of the model, or of a tensor of one, as the adapter has it.
  std::string own_name(const std::string& name) const;
  /// "lora_target", or "'ad/adapter_config.json': target_modules", as errors name it.
  std::string key_words(std::string_view key_of_run_files, std::string_view key_of_peft) const;
  /// `all` (but for routers), a comma-separated list of names or ends of paths, or one regular expression for whole names, which
  /// is known by a character that no name has. Names that no model has are kept, for an error that lists those of the model at
  /// hand. Throws ConfigError if the list is empty.
  void set_targets(const std::string& list);
  /// Keeps those targets whose last name is among `modules`; the others, where an adapter's file lists them, become `absent`.
  void keep_targets(const std::vector<std::string>& modules);
  /// As set_targets() takes them.
  std::string targets_text() const;
};

}  // namespace qft::model
