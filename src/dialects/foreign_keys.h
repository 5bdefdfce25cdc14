// The table of other tools' keys and their meaning in qft, for run files and the command line.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "config_names.h"

namespace qft::dialects {

struct ForeignKey {
  enum class Class {
    renamed,    // another name for `key`
    converted,  // `words` maps its values to settings
    combined,   // works together with other keys: see translate.cpp
    either,     // has two meanings: `key` in ms-swift, `words` in other tools
    section,    // a section of LLaMA-Factory's version 1, or its name: see llama_factory_v1.h
    ranks,      // a number that must equal the number of ranks
    no_effect,  // has no effect in qft, noted once
    refused,    // qft would give another result than asked for
  };
  /// llama_factory: keys of LLaMA-Factory and of transformers' TrainingArguments. llama_factory_v1, swift: keys that only this
  /// tool has; one of them determines the dialect. other: keys of several tools, training scripts, TRL, axolotl, Lightning and
  /// launchers.
  enum class Tool { llama_factory, llama_factory_v1, swift, other };
  Class kind;
  Tool tool;
  std::string_view name;
  std::string_view reason;    // no_effect, refused: reason and remedy; converted, either: text that an error adds
  std::string_view harmless;  // no_effect, refused: values that change nothing (the tool's default), as "null|false|1"
  std::string_view key;
  /// renamed: translated values, "all-linear=all|none=null". converted: "full: finetuning_type=full; lora|peft: ..."; * matches
  /// any value, and key?=value applies if nothing else sets the key. either: the key that tools other than ms-swift mean; used if
  /// `key` itself is given; empty: none.
  std::string_view words;
};

/// The tool whose defaults apply to missing keys.
enum class Dialect { own, swift, llama_factory_v1 };

/// Keys that only one tool has determine the dialect.
Dialect dialect_of(const std::vector<Setting>& settings);

/// Returns the whole table.
const std::vector<ForeignKey>& foreign_keys();

/// True if the key has an effect, so that messages may suggest it.
bool has_effect(const ForeignKey& key);

/// Returns the row with this name, or nullptr.
const ForeignKey* find_foreign(std::string_view name);

/// True if `value` is one of the words in `harmless` ("null|false|1"). Lists and mappings are harmless only if empty.
bool is_harmless(std::string_view harmless, const Value& value);

/// A default of ms-swift that differs from LLaMA-Factory's.
struct SwiftDefault {
  std::string_view key;
  std::string_view value;
};
std::span<const SwiftDefault> swift_defaults();

}  // namespace qft::dialects
