// Which modules an adapter wraps, whatever its kind, as PEFT's target_modules and modules_to_save say it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qft::model {

struct AdapterTargets {
  const char* key = "lora_target";  ///< of run files, as errors name it
  /// Modules by their names, or by the ends of their paths: those of lora_modules() in that order, then paths.
  std::vector<std::string> targets;
  std::string target_pattern = {};  ///< not empty: those whose whole name this regular expression matches, and no others
  /// Modules that train in full beside the adapter, and are saved with it (PEFT's modules_to_save).
  std::vector<std::string> modules_to_save = {};
  /// Of the classifier that it is the adapter of (PEFT's task_type SEQ_CLS), whose head it has beside these; 0: it is of none.
  std::int64_t labels = 0;

  bool targets_module(std::string_view name) const;
  /// `all` (but for routers), a comma-separated list of names or ends of paths, or one regular expression for whole names, which
  /// is known by a character that no name has. Throws ConfigError naming an unknown module and the known.
  void set_targets(const std::string& list);
  /// Keeps those targets whose last name is among `modules`.
  void keep_targets(const std::vector<std::string>& modules);
  /// As set_targets() takes them.
  std::string targets_text() const;
};

}  // namespace qft::model
