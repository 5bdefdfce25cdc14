// Run files of LLaMA-Factory's version 1. They have sections such as peft_config; a section's `name` determines its keys.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config_names.h"
#include "foreign_table.h"

namespace qft::dialects {

/// A section. Its `name` entry determines its keys.
struct V1Section {
  std::string_view name;
  std::string_view choices;  // the allowed names, for errors
};
std::span<const V1Section> v1_sections();

/// The meaning of a section with one of its names.
struct V1Plugin {
  std::string_view section{};
  std::string_view name{};  // empty: the section is not given
  std::initializer_list<Assignment> sets{};
  std::initializer_list<Assignment> defaults{};
  ForeignTables tables{};  // its keys
};
std::span<const V1Plugin> v1_plugins();

/// The defaults of version 1 that differ from the older format's.
std::span<const Translation::Default> v1_defaults();

/// The result of reading the keys of version 1.
struct V1Sections {
  bool used = false;              // true if there are keys of version 1
  std::string key;                // the first of them
  std::vector<Setting> settings;  // with qft's keys
  std::vector<Translation::Default> defaults;
  std::vector<std::string> notes;
};

/// Reads settings after split_sections(). Throws ConfigError for a section without a name or with a name that is not
/// implemented, and for keys that belong to another name.
V1Sections read_v1(const std::vector<Setting>& settings);

}  // namespace qft::dialects
