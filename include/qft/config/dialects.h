// Keys of other tools, as config sees them. The module `dialects` knows these keys; config knows only qft's.
#pragma once

#include "qft/config/run_config.h"
#include "qft/config/setting.h"

#include <filesystem>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qft::config {

/// The settings of a run, translated to qft's keys.
struct Translation {
  /// A default of another tool that differs from qft's.
  struct Default {
    std::string_view key;
    std::string_view value;
    std::initializer_list<const char*> unless = {};  // not applied if one of these keys is given
  };
  std::vector<Setting> given;      // before the translation, with one setting for each key of a section
  std::vector<Setting> settings;   // with qft's keys; unknown keys are unchanged
  std::vector<Setting> fallbacks;  // apply if nothing else sets the key
  std::vector<Setting> earlier;    // from the run that wrote the adapter or model; apply if the key is still unset
  std::vector<Default> defaults;   // apply if the key is still unset; they do not count as given
  std::string defaults_reason;     // why `defaults` apply, for the note
  std::vector<std::string> notes;
  std::vector<WorldClaim> claims;
};

/// What loading, command line and help ask about other tools. This base class knows no other tool: a program that reads the run
/// files of other tools passes dialects::all().
class Dialects {
 public:
  /// A key of another tool.
  struct Key {
    std::string_view own;  // qft's key with this meaning; empty: several keys, or none
    bool renames = false;  // true if the key is only another name for `own`
  };

  Dialects() = default;
  Dialects(const Dialects&) = delete;
  Dialects& operator=(const Dialects&) = delete;
  virtual ~Dialects() = default;

  /// Returns nullopt if no other tool has this key.
  virtual std::optional<Key> find(std::string_view name) const;
  /// Returns the keys of other tools that have an effect, so that messages may suggest them.
  virtual std::vector<std::string_view> names() const;
  /// Returns the names that other tools have for qft's key `own`.
  virtual std::vector<std::string_view> names_of(std::string_view own) const;
  /// The same for the files of launchers: "optimizer.params.lr (DeepSpeed)".
  virtual std::vector<std::string> launcher_names_of(std::string_view own) const;
  /// Explains a key that find() knows, in lines for `qft help KEY`.
  virtual std::string describe(std::string_view name) const;

  /// Translates the settings of a run file and the command line, in this order. Throws ConfigError for refused keys and values.
  virtual Translation translate(std::vector<Setting> settings, Purpose purpose) const;
  /// Completes a configuration after its settings are stored: imports the files that deepspeed, fsdp, fsdp_config and
  /// accelerate_config name, and adds the folders and notes that users of the other tool expect. The base class throws
  /// ConfigError if one of these keys is given.
  virtual void complete(RunConfig& config, const Translation& translation, Purpose purpose) const;
};

/// Knows only qft's keys.
inline const Dialects kOwnKeysOnly;

/// Like load_run_config() in qft/config/run_config.h, for run files and overrides that may have keys of other tools.
RunConfig load_run_config(const std::filesystem::path& file, std::span<const std::string> overrides, Purpose purpose,
                          const Dialects& dialects);

}  // namespace qft::config
