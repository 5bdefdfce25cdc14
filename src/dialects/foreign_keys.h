// The table of other tools' keys and their meaning in qft, for run files and the command line.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "config_names.h"
#include "foreign_table.h"

namespace qft::dialects {

struct Combined {};
struct Section {};
struct Ranks {};
struct DataRanks {};

/// A key of another tool and its meaning.
struct ForeignKey {
  /// llama_factory: keys of LLaMA-Factory and of transformers' TrainingArguments. llama_factory_v1, swift: keys that only this
  /// tool has; one of them determines the dialect. megatron: the same for Megatron-LM and ms-swift's `megatron` commands.
  /// megatron_core: names that LLaMA-Factory's Megatron backend has too; they determine the dialect only beside one of ms-swift.
  /// other: keys of several tools, training scripts, TRL, axolotl, Lightning and launchers.
  enum class Tool { llama_factory, llama_factory_v1, swift, megatron, megatron_core, other };
  using Meaning = std::variant<const Renamed*, const Converted*, const Either*, const NoEffect*, const Refused*, Combined,
                               Section, Ranks, DataRanks>;
  std::string_view name;
  Tool tool;
  Meaning meaning;

  /// Returns the row of this kind; nullptr if the key has another kind.
  template <class Row>
  const Row* as() const {
    const auto* row = std::get_if<const Row*>(&meaning);
    return row == nullptr ? nullptr : *row;
  }
  /// True for the kinds without a row.
  template <class Kind>
  bool is() const {
    return std::holds_alternative<Kind>(meaning);
  }
  /// Returns the key of qft that it means (in ms-swift, if it has two meanings); empty if that depends on its value, or none.
  std::string_view own() const;
};

/// Calls `add(name, meaning)` for each key of the tables.
void for_each_key(const ForeignTables& tables, const std::function<void(std::string_view, ForeignKey::Meaning)>& add);

/// The tool whose defaults apply to missing keys.
enum class Dialect { own, swift, megatron, llama_factory_v1 };

/// Keys that only one tool has determine the dialect.
Dialect dialect_of(const std::vector<Setting>& settings);

/// Returns the whole table.
const std::vector<ForeignKey>& foreign_keys();

/// True if the key has an effect, so that messages may suggest it.
bool has_effect(const ForeignKey& key);

/// Returns the row with this name, or nullptr.
const ForeignKey* find_foreign(std::string_view name);

/// True if `value` is one of the words in `harmless`. Lists and mappings are harmless only if empty.
bool is_harmless(Names harmless, const Value& value);

/// A default of ms-swift that differs from LLaMA-Factory's.
struct SwiftDefault {
  std::string_view key;
  std::string_view value;
};
std::span<const SwiftDefault> swift_defaults();

}  // namespace qft::dialects
