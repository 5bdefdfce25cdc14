#include "qft/model/adapter_targets.h"

#include "qft/core/error.h"
#include "qft/model/spec.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <sstream>

#include "../sublayers/descriptions.h"
#include <fmt/ranges.h>

namespace qft::model {
namespace {

/// Characters that never occur in module names.
constexpr const char* kPatternCharacters = "*+?[](){}|^$\\";

std::string_view last_name(std::string_view path) {
  return path.substr(path.rfind('.') + 1);
}

std::vector<std::string> words_of(const std::string& list) {
  std::vector<std::string> words;
  std::istringstream in(list);
  for (std::string word; std::getline(in, word, ',');) {
    word.erase(0, word.find_first_not_of(" \t"));
    word.erase(word.find_last_not_of(" \t") + 1);
    if (!word.empty()) words.push_back(word);
  }
  return words;
}

}  // namespace

bool AdapterTargets::targets_module(std::string_view name) const {
  return std::ranges::any_of(targets, [&](const std::string& target) {
    return name.ends_with(target) && (name.size() == target.size() || name[name.size() - target.size() - 1] == '.');
  });
}

std::string AdapterTargets::name_in_files(const std::string& name) const {
  if (text_prefix.empty()) return name;
  for (const std::string_view prefix : kTextPrefixes)
    if (name.starts_with(prefix)) return text_prefix + name.substr(prefix.size());
  for (const std::string_view outer : {"layers.", "embed_tokens.", "norm."})  // the model's files have names without a prefix
    if (name.starts_with(outer)) return text_prefix + name;
  return name;
}

std::string AdapterTargets::key_for_errors(std::string_view key_of_run_files, std::string_view key_of_peft) const {
  return origin.empty() ? std::string(key_of_run_files) : fmt::format("'{}': {}", origin, key_of_peft);
}

void AdapterTargets::keep_targets(const std::vector<std::string>& modules) {
  const auto is_kept = [&](const std::string& name) { return std::ranges::find(modules, last_name(name)) != modules.end(); };
  if (!origin.empty() && !all_linear)
    std::ranges::copy_if(targets, std::back_inserter(absent), [&](const std::string& name) { return !is_kept(name); });
  std::erase_if(targets, [&](const std::string& name) { return !is_kept(name); });
}

void AdapterTargets::set_targets(const std::string& list) {
  const auto& known = lora_modules();
  std::set<std::string> names;
  std::vector<std::string> paths;
  targets.clear();
  absent.clear();
  target_pattern.clear();
  all_linear = false;
  if (list.find_first_of(kPatternCharacters) != std::string::npos) {
    target_pattern = list;
    return;
  }
  for (const std::string& word : words_of(list)) {
    if (word == "all") {
      all_linear = true;
      std::ranges::copy_if(known, std::inserter(names, names.end()), [](const std::string& name) { return !is_router(name); });
      continue;
    }
    const std::string_view name = last_name(word);
    const bool is_known = std::ranges::find(known, name) != known.end();
    if (!is_known && !origin.empty()) {
      absent.push_back(word);  // as in PEFT, which ignores it if other targets exist
      continue;
    }
    if (name == word && is_known)
      names.insert(word);
    else
      paths.push_back(word);
  }
  if (names.empty() && paths.empty() && absent.empty())
    fail_config("{} is empty: use all, or a list of modules", key_for_errors(key, "target_modules"));
  std::ranges::copy_if(known, std::back_inserter(targets), [&](const std::string& name) { return names.contains(name); });
  std::ranges::copy(paths, std::back_inserter(targets));
}

std::string AdapterTargets::targets_text() const {
  return target_pattern.empty() ? fmt::format("{}", fmt::join(targets, ",")) : target_pattern;
}

}  // namespace qft::model
