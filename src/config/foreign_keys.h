// The one table of other tools' names: what each key of theirs is here. Run files and the command line go by it.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "value.h"

namespace qft::config {

struct ForeignKey {
  enum class Class {
    renamed,    // another name of `key`
    converted,  // its values stand for settings: `words` says which
    combined,   // counts together with other keys: translate.cpp says how
    either,     // means one thing in one tool and another in the next: `key` in ms-swift, `words` otherwise
    section,    // a mapping of LLaMA-Factory's version 1, and its name: llama_factory_v1.h says what its keys mean
    ranks,      // a number that the ranks must confirm
    no_effect,  // without effect here, noted once
    refused,    // the result would differ from what was asked
  };
  /// llama_factory: its own keys and those of transformers' TrainingArguments. llama_factory_v1, swift: keys that only that
  /// one has: one of them tells how the others are meant. other: those of several tools, and of training scripts,
  /// TRL, axolotl, Lightning, launchers.
  enum class Tool { llama_factory, llama_factory_v1, swift, other };
  Class kind;
  Tool tool;
  std::string_view name;
  std::string_view reason;    // no_effect, refused: why, and what to do instead; converted, either: what an error adds
  std::string_view harmless;  // no_effect, refused: values that ask for nothing (the foreign default), as "null|false|1"
  std::string_view key;
  /// renamed: other words for values, "all-linear=all|none=null". converted: "full: finetuning_type=full;
  /// lora|peft: ...", where * stands for any value, and key?=value counts where no one else sets the key.
  /// either: the key that the name is for all but ms-swift once `key` is given by itself; empty: none.
  std::string_view words;
};

/// The whole table.
const std::vector<ForeignKey>& foreign_keys();

/// True if the key sets something: a message may suggest it.
bool acts(const ForeignKey& key);

/// The row of this name, or nullptr.
const ForeignKey* find_foreign(std::string_view name);

/// True where `value` is one of the words of `harmless` ("null|false|1"); lists and mappings only if empty.
bool is_harmless(std::string_view harmless, const Value& value);

/// What ms-swift takes where a key is not given, and LLaMA-Factory takes something else.
struct SwiftDefault {
  std::string_view key;
  std::string_view value;
};
std::span<const SwiftDefault> swift_defaults();

}  // namespace qft::config
