#include "import_table.h"

#include "qft/config/bound_field.h"
#include "qft/config/dump.h"
#include "qft/config/nearest.h"
#include "qft/config/store.h"
#include "qft/core/error.h"

#include <algorithm>
#include <cmath>

#include "foreign_keys.h"

namespace qft::dialects {
namespace {

enum class Role { matches, collect, batch, ranks, no_effect, refused };

/// One path, or one pattern of paths, of ImportTables.
struct ImportKey {
  Role role;
  std::string_view pattern;
  std::string_view key_or_reason = {};
  Names harmless = {};
  std::initializer_list<Word> words = {};  // matches: values with another name here
};

std::vector<ImportKey> keys_of(const ImportTables& tables) {
  std::vector<ImportKey> keys;
  for (const Renamed& row : tables.matches)
    for (const char* name : row.names) keys.push_back({Role::matches, name, row.key, {}, row.words});
  for (const char* name : tables.collect) keys.push_back({Role::collect, name});
  for (const char* name : tables.batch) keys.push_back({Role::batch, name});
  for (const char* name : tables.ranks) keys.push_back({Role::ranks, name});
  for (const NoEffect& row : tables.no_effect)
    for (const char* name : row.names) keys.push_back({Role::no_effect, name, row.reason});
  for (const Refused& row : tables.refused)
    for (const char* name : row.names) keys.push_back({Role::refused, name, row.reason, row.harmless});
  return keys;
}

constexpr double kMaxClaim = 1e15;  // above this a double cannot hold every integer

bool covers(std::string_view pattern, std::string_view path) {
  if (!pattern.ends_with(".*")) return pattern == path;
  const std::string_view stem = pattern.substr(0, pattern.size() - 2);
  return path.starts_with(stem) && path.size() > stem.size() && path[stem.size()] == '.';
}

// A key for the path itself takes precedence over a "name.*" above it.
const ImportKey* find_key(const std::vector<ImportKey>& keys, std::string_view path) {
  const ImportKey* above = nullptr;
  for (const ImportKey& key : keys) {
    if (key.pattern == path) return &key;
    if (covers(key.pattern, path)) above = &key;
  }
  return above;
}

void list_leaves(const Value& value, const std::string& path, std::vector<Leaf>& leaves) {
  for (const auto& [key, entry] : value.entries) {
    const std::string below = path.empty() ? key : path + "." + key;
    if (entry.kind == Value::Kind::map && !entry.entries.empty()) {
      list_leaves(entry, below, leaves);
    } else {
      leaves.push_back({below, entry, {}, {}});
    }
  }
}

// True if there are keys below the path, so that its value must be a mapping.
bool has_keys_below(const std::vector<ImportKey>& keys, std::string_view path) {
  return std::ranges::any_of(keys, [&](const ImportKey& key) {
    return key.pattern.starts_with(path) && key.pattern.size() > path.size() && key.pattern[path.size()] == '.';
  });
}

// True for a section that is explicitly empty: null, {} or false.
bool is_nothing(const Value& value) {
  return value.kind == Value::Kind::null || (value.kind == Value::Kind::map && value.entries.empty()) || as_bool(value) == false;
}

bool is_auto(const Value& value) {
  return value.kind == Value::Kind::scalar && value.text == "auto";
}

// True if the value leaves the run file's key as it is, as the tool's default does.
bool sets_nothing(const ImportKey& key, const Value& value) {
  return std::ranges::any_of(key.words, [&](const Word& w) {
    return value.kind == Value::Kind::scalar && w.theirs == value.text && w.ours == std::string_view("null");
  });
}

[[noreturn]] void fail_unknown(const Leaf& leaf, const std::vector<ImportKey>& keys) {
  std::vector<std::string_view> names;
  for (const ImportKey& key : keys) names.push_back(key.pattern);
  fail_config("{}: unknown key{}", leaf.where,
              config::suggestion(leaf.path, names, "remove it if the run does not depend on it"));
}

}  // namespace

void add_claim(RunConfig& config, WorldClaim::Kind kind, const Leaf& leaf) {
  const auto number = as_double(leaf.value);  // JSON may write 100 as 1e2 or "100"
  if (!number || *number < 1 || *number != std::floor(*number) || *number > kMaxClaim) {
    fail_config("{}: expected an integer from 1 to {}, got {}", leaf.where, kMaxClaim, describe(leaf.value));
  }
  config.world_claims.push_back({kind, static_cast<std::int64_t>(*number), leaf.where});
}

Value plain(std::string_view text) {
  return Value{.kind = Value::Kind::scalar, .text = std::string(text)};
}

void match_key(RunConfig& config, std::string_view key, const Value& value, const Leaf& leaf) {
  RunConfig scratch, fresh;
  const auto ours = bound_fields(config), theirs = bound_fields(scratch), initial = bound_fields(fresh);
  const config::BoundField* own = find_field(ours, key);
  QFT_ASSERT(own != nullptr, "the import table names '{}', which is not a key", key);
  const std::size_t index = own - ours.data();
  store(own->field, theirs[index].ref, initial[index].ref, value, leaf.where);
  if (!config.is_given(key)) {
    store(own->field, own->ref, initial[index].ref, value, leaf.where);
    config.given[std::string(key)] = leaf.source;
    return;
  }
  const auto own_value = field_value(own->field, own->ref), their_value = field_value(own->field, theirs[index].ref);
  if (own_value != their_value) {
    fail_config("{} asks for {} {}, but {} is {}: make them agree or remove one", leaf.where, key, their_value.dump(),
                at_key(config, key), own_value.dump());
  }
}

void match_strategy(RunConfig& config, const std::string& strategy, const Leaf& leaf) {
  std::string& own = config.parallel.strategy;
  if (own == "auto" || config::canonical_strategy(own) == config::canonical_strategy(strategy)) {
    own = strategy;
    config.given["strategy"] = leaf.where;
    return;
  }
  fail_config("{} asks for strategy {}, but {} is {}: make them agree or remove one", leaf.where, strategy,
              at_key(config, "strategy"), own);
}

std::map<std::string, Leaf, std::less<>> import_keys(RunConfig& config, const Value& document, std::string_view file,
                                                     bool inlined, const ImportTables& tables) {
  if (document.kind != Value::Kind::map) {
    fail_config("{}: expected a mapping of keys to values, got {}", file, describe(document));
  }
  const std::vector<ImportKey> keys = keys_of(tables);
  std::vector<Leaf> leaves;
  list_leaves(document, "", leaves);
  std::map<std::string, Leaf, std::less<>> collected;
  std::map<std::string_view, std::string> no_effect;  // reason -> paths
  for (Leaf& leaf : leaves) {
    leaf.source = inlined ? std::string(file) : fmt::format("{}:{}", file, leaf.value.line);
    leaf.where = inlined ? fmt::format("{}.{}", file, leaf.path) : fmt::format("{}: {}", leaf.source, leaf.path);
    if (has_keys_below(keys, leaf.path)) {
      if (is_nothing(leaf.value)) continue;
      fail_config("{}: expected a mapping of keys to values, got {}", leaf.where, describe(leaf.value));
    }
    const ImportKey* row = find_key(keys, leaf.path);
    if (row == nullptr) fail_unknown(leaf, keys);
    const bool is_set = !is_auto(leaf.value) && leaf.value.kind != Value::Kind::null;
    if (row->role == Role::matches && is_set && !sets_nothing(*row, leaf.value))
      match_key(config, row->key_or_reason, leaf.value, leaf);
    if (row->role == Role::batch && is_set) add_claim(config, WorldClaim::Kind::global_batch, leaf);
    if (row->role == Role::ranks && is_set) add_claim(config, WorldClaim::Kind::ranks, leaf);
    if (row->role == Role::collect && is_set) collected[leaf.path] = leaf;
    if (row->role == Role::no_effect && is_set)
      no_effect[row->key_or_reason] += (no_effect[row->key_or_reason].empty() ? "" : ", ") + leaf.path;
    if (row->role == Role::refused && is_set && !is_harmless(row->harmless, leaf.value)) {
      fail_config("{}: {} is refused: {}", leaf.where, describe(leaf.value), row->key_or_reason);
    }
  }
  for (const auto& [reason, paths] : no_effect) {
    config.notes.push_back(fmt::format("{}: keys without effect in qft: {}: {}", file, paths, reason));
  }
  return collected;
}

std::vector<std::string> launcher_names_of(std::string_view own) {
  std::vector<std::string> names;
  for (const ImportTables* tables : {&deepspeed_keys(), &accelerate_keys(), &parallelism_keys()})
    for (const Renamed& row : tables->matches)
      for (const char* name : row.names)
        if (row.key == own) names.push_back(fmt::format("{}{} ({})", tables->section, name, tables->file));
  return names;
}

void import_launchers(RunConfig& config) {
  const auto& training = config.training;
  const bool fsdp = !training.fsdp.is_null() && training.fsdp != false && training.fsdp != "";
  if (!training.deepspeed.is_null() && (fsdp || !training.accelerate_config.empty())) {
    fail_config("{} and {} are both given: keep one", at_key(config, "deepspeed"),
                at_key(config, fsdp ? "fsdp" : "accelerate_config"));
  }
  if (fsdp && !training.accelerate_config.empty()) {
    fail_config("{} and {} are both given: keep one", at_key(config, "fsdp"), at_key(config, "accelerate_config"));
  }
  if (!training.deepspeed.is_null()) {
    const std::string where = at_key(config, "deepspeed");
    if (training.deepspeed.is_object()) {
      import_deepspeed(config, parse_json(training.deepspeed.dump(), where), where, true);
    } else {
      import_deepspeed_named(config, training.deepspeed, where);
    }
  }
  if (fsdp) import_fsdp(config);
  if (!fsdp && !training.fsdp_config.is_null()) {
    config.notes.push_back(fmt::format("{} has no effect without fsdp", at_key(config, "fsdp_config")));
  }
  if (!training.accelerate_config.empty()) import_accelerate(config, training.accelerate_config);
}

}  // namespace qft::dialects
