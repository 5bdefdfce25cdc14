// Run files of LLaMA-Factory's version 1: sections such as peft_config, each with a `name` that says which keys it has.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "foreign_table.h"
#include "setting.h"

namespace qft::config {

/// A section whose keys depend on its name.
struct V1Section {
  std::string_view name;
  std::string_view choices;  // what an error says of other names
};
std::span<const V1Section> v1_sections();

/// What a section means with one of its names.
struct V1Plugin {
  std::string_view section{};
  std::string_view name{};             // empty: where the section is not given
  std::string_view sets{};             // "finetuning_type=lora"
  std::string_view defaults{};         // what counts where nothing sets it: "lora_alpha=16 lora_dropout=0.05"
  std::span<const ForeignRow> rows{};  // its keys; all of them are rows of the one table too
};
std::span<const V1Plugin> v1_plugins();

/// What version 1 takes where a key is not given, and the older format takes something else.
struct V1Default {
  std::string_view key;
  std::string_view value;
  std::string_view unless = {};  // keys that rule it out, as "fp16|pure_bf16"
};
std::span<const V1Default> v1_defaults();

/// The settings with each section taken apart: peft_config with r and name becomes peft_config.r and peft_config.name, each with
/// its own line. A later null takes a section back. Throws ConfigError for a section that is no mapping.
std::vector<Setting> take_sections_apart(std::vector<Setting> settings);

/// What the keys of version 1 say together.
struct V1Sections {
  bool used = false;              // whether there are any
  std::vector<Setting> settings;  // under our own keys
  std::vector<V1Default> defaults;
  std::vector<std::string> notes;
};

/// Of settings whose sections are taken apart. Throws ConfigError for a section without a name or with one that is not
/// implemented, and for keys that go with another name.
V1Sections read_v1(const std::vector<Setting>& settings);

}  // namespace qft::config
