#include "foreign_keys.h"

#include "qft/core/error.h"

#include <algorithm>
#include <unordered_map>

namespace qft::dialects {
namespace {

std::vector<ForeignKey> all_keys() {
  using Tool = ForeignKey::Tool;
  std::vector<ForeignKey> keys;
  const auto add = [&](Tool tool, const ForeignTables& tables) {
    for_each_key(tables, [&](std::string_view name, ForeignKey::Meaning meaning) { keys.push_back({name, tool, meaning}); });
  };
  add(Tool::llama_factory, llama_factory_tables());
  for (const ForeignTables& section : v1_tables()) add(Tool::llama_factory_v1, section);
  add(Tool::swift, swift_tables());
  add(Tool::megatron, megatron_tables());
  add(Tool::megatron_core, megatron_core_tables());
  add(Tool::other, other_tables());
  return keys;
}

template <class Row>
void add_rows(std::span<const Row> rows, const std::function<void(std::string_view, ForeignKey::Meaning)>& add) {
  for (const Row& row : rows)
    for (const char* name : row.names) add(name, &row);
}

using Index = std::unordered_map<std::string_view, const ForeignKey*>;

Index make_index() {
  Index index;
  for (const ForeignKey& key : foreign_keys()) {
    QFT_ASSERT(index.emplace(key.name, &key).second, "the table of foreign keys has two rows for '{}'", key.name);
  }
  return index;
}

}  // namespace

std::string_view ForeignKey::own() const {
  if (const auto* row = as<Renamed>()) return row->key;
  if (const auto* row = as<Either>()) return row->swift;
  return {};
}

void for_each_key(const ForeignTables& tables, const std::function<void(std::string_view, ForeignKey::Meaning)>& add) {
  add_rows(tables.renamed, add);
  add_rows(tables.converted, add);
  for (const Either& row : tables.either) add(row.name, &row);
  for (const char* name : tables.combined) add(name, Combined{});
  for (const char* name : tables.sections) add(name, Section{});
  for (const char* name : tables.ranks) add(name, Ranks{});
  for (const char* name : tables.data_ranks) add(name, DataRanks{});
  add_rows(tables.no_effect, add);
  add_rows(tables.refused, add);
}

const std::vector<ForeignKey>& foreign_keys() {
  static const std::vector<ForeignKey> keys = all_keys();
  return keys;
}

Dialect dialect_of(const std::vector<Setting>& settings) {
  using Tool = ForeignKey::Tool;
  bool swift = false, megatron = false, core = false;
  for (const Setting& setting : settings) {
    const ForeignKey* foreign = find_foreign(setting.key);
    if (foreign == nullptr) continue;
    if (foreign->tool == Tool::llama_factory_v1) return Dialect::llama_factory_v1;  // `model` is a key of ms-swift too
    swift |= foreign->tool == Tool::swift && foreign->as<Either>() == nullptr;
    megatron |= foreign->tool == Tool::megatron;
    core |= foreign->tool == Tool::megatron_core;
  }
  if (megatron || (core && swift)) return Dialect::megatron;
  return swift ? Dialect::swift : Dialect::own;
}

bool has_effect(const ForeignKey& key) {
  return key.as<Renamed>() != nullptr || key.as<Converted>() != nullptr || key.as<Either>() != nullptr || key.is<Combined>();
}

const ForeignKey* find_foreign(std::string_view name) {
  static const Index index = make_index();
  const auto found = index.find(name);
  return found == index.end() ? nullptr : found->second;
}

bool is_harmless(Names harmless, const Value& value) {
  if (value.kind == Value::Kind::list) {
    if (value.items.size() == 1) return is_harmless(harmless, value.items[0]);
    return value.items.empty();
  }
  if (value.kind == Value::Kind::map) return value.entries.empty();
  std::string word = value.kind == Value::Kind::null || value.text.empty() ? "null" : value.text;
  if (const auto flag = as_bool(value)) word = *flag ? "true" : "false";
  return std::ranges::find(harmless, word) != harmless.end();
}

}  // namespace qft::dialects
