#include "tree_builder.h"

#include "qft/core/error.h"

#include <utility>

namespace qft::config {
namespace {
constexpr std::size_t kMaxDepth = 64;
constexpr std::size_t kMaxKeys = 10000;  // in one mapping: each key is compared with all others
}  // namespace

void TreeBuilder::reject(int line, std::string_view message) const {
  fail_config("{}:{}: {}", where_, line, message);
}

bool TreeBuilder::expects_key() const {
  return !open_.empty() && open_.back().value.kind == Value::Kind::map && !open_.back().has_key;
}

void TreeBuilder::take_key(std::string key, int line) {
  Level& level = open_.back();
  if (level.value.entries.size() >= kMaxKeys) reject(line, fmt::format("more than {} keys in one mapping", kMaxKeys));
  for (const auto& [earlier, value] : level.value.entries) {
    if (earlier == key) {
      reject(line, fmt::format("key '{}' is given twice, first on line {}: remove one", key, value.line));
    }
  }
  level.key = std::move(key);
  level.key_line = line;
  level.has_key = true;
}

void TreeBuilder::add(Value value) {
  if (open_.empty()) {
    root_ = std::move(value);
    return;
  }
  Level& level = open_.back();
  if (level.value.kind == Value::Kind::list) {
    level.value.items.push_back(std::move(value));
    return;
  }
  value.line = level.key_line;
  level.value.entries.emplace_back(std::move(level.key), std::move(value));
  level.has_key = false;
}

void TreeBuilder::null(int line) {
  if (expects_key()) reject(line, "a key is empty");
  add(Value{.line = line});
}

void TreeBuilder::scalar(std::string text, bool quoted, int line) {
  if (expects_key()) return take_key(std::move(text), line);
  add(Value{.kind = Value::Kind::scalar, .text = std::move(text), .quoted = quoted, .line = line});
}

void TreeBuilder::begin(Value::Kind kind, int line) {
  if (expects_key()) reject(line, "a list or mapping cannot be a key: is a bracket left open?");
  if (open_.size() >= kMaxDepth) reject(line, fmt::format("more than {} levels of nesting", kMaxDepth));
  open_.push_back(Level{.value = Value{.kind = kind, .line = line}});
}

void TreeBuilder::end() {
  Value value = std::move(open_.back().value);
  open_.pop_back();
  add(std::move(value));
}

}  // namespace qft::config
