// The modules that an adapter of any kind wraps, as PEFT's target_modules and modules_to_save list them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qft::model {

struct AdapterTargets {
  const char* key = "lora_target";  ///< the run-file key that errors name
  std::string origin = {};          ///< the adapter_config.json with the targets; empty: a run file
  /// Prefix of the decoder's module names in the adapter's files; empty: the model's own prefix. Expressions and paths match
  /// names with this prefix, and written files keep it.
  std::string text_prefix = {};
  /// Modules by name or by the end of their path: first names in the order of lora_modules(), then paths.
  std::vector<std::string> targets;
  bool all_linear = false;          ///< the list was `all`
  std::string target_pattern = {};  ///< not empty: a regular expression; exactly the modules whose full name matches are wrapped
  std::vector<std::string> absent = {};  ///< modules that the adapter's file lists but the model does not have
  /// Modules that train in full beside the adapter and are saved with it (PEFT's modules_to_save).
  std::vector<std::string> modules_to_save = {};
  /// Labels of the classification head saved with the adapter (PEFT's task_type SEQ_CLS); 0 if none.
  std::int64_t labels = 0;

  bool targets_module(std::string_view name) const;
  /// Returns the adapter's name for a module of the model, or for a module's tensor.
  std::string name_in_files(const std::string& name) const;
  /// Returns the key as errors name it: "lora_target", or "'ad/adapter_config.json': target_modules".
  std::string key_for_errors(std::string_view key_of_run_files, std::string_view key_of_peft) const;
  /// Parses `all` (every module except routers), a comma-separated list of names or path ends, or one regular expression for full
  /// names, recognised by a character that no name contains. Keeps names that no model has, so that a later error can list the
  /// names of the model at hand. Throws ConfigError if the list is empty.
  void set_targets(const std::string& list);
  /// Keeps the targets whose last name component is in `modules`. If an adapter's file lists other targets, they move to
  /// `absent`.
  void keep_targets(const std::vector<std::string>& modules);
  /// Returns the targets in the form that set_targets() reads.
  std::string targets_text() const;
};

}  // namespace qft::model
