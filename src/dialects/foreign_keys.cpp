#include "foreign_keys.h"

#include "qft/core/error.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "foreign_table.h"
#include "split.h"

namespace qft::dialects {
namespace {

std::vector<ForeignKey> split_rows() {
  using Tool = ForeignKey::Tool;
  std::vector<ForeignKey> keys;
  for (const auto& [tool, rows] : {std::pair{Tool::llama_factory, llama_factory_rows()},
                                   {Tool::llama_factory_v1, v1_rows()},
                                   {Tool::swift, swift_rows()},
                                   {Tool::other, other_rows()}}) {
    for (const ForeignRow& row : rows)
      for (const std::string_view name : split(row.names))
        keys.push_back({row.kind, tool, name, row.reason, row.harmless, row.key, row.words});
  }
  return keys;
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

const std::vector<ForeignKey>& foreign_keys() {
  static const std::vector<ForeignKey> keys = split_rows();
  return keys;
}

Dialect dialect_of(const std::vector<Setting>& settings) {
  using Tool = ForeignKey::Tool;
  bool swift = false;
  for (const Setting& setting : settings) {
    const ForeignKey* foreign = find_foreign(setting.key);
    if (foreign == nullptr) continue;
    if (foreign->tool == Tool::llama_factory_v1) return Dialect::llama_factory_v1;  // `model` is a key of ms-swift too
    swift |= foreign->tool == Tool::swift && foreign->kind != ForeignKey::Class::either;
  }
  return swift ? Dialect::swift : Dialect::own;
}

bool has_effect(const ForeignKey& key) {
  using Class = ForeignKey::Class;
  return key.kind == Class::renamed || key.kind == Class::converted || key.kind == Class::combined || key.kind == Class::either;
}

const ForeignKey* find_foreign(std::string_view name) {
  static const Index index = make_index();
  const auto found = index.find(name);
  return found == index.end() ? nullptr : found->second;
}

bool is_harmless(std::string_view harmless, const Value& value) {
  if (value.kind == Value::Kind::list) {
    if (value.items.size() == 1) return is_harmless(harmless, value.items[0]);
    return value.items.empty();
  }
  if (value.kind == Value::Kind::map) return value.entries.empty();
  std::string word = value.kind == Value::Kind::null || value.text.empty() ? "null" : value.text;
  if (const auto flag = as_bool(value)) word = *flag ? "true" : "false";
  return fmt::format("|{}|", harmless).find(fmt::format("|{}|", word)) != std::string::npos;
}

}  // namespace qft::dialects
