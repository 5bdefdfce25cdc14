#include "qft/model/lora_config.h"

#include "qft/core/error.h"
#include "qft/model/spec.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <sstream>

#include "sublayers/descriptions.h"
#include <fmt/ranges.h>

namespace qft::model {
namespace {

/// What no name of a module has.
constexpr const char* kOfExpressions = "*+?[](){}|^$\\";

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

double LoraConfig::scaling(std::int64_t rank, double alpha) const {
  return rslora ? alpha / std::sqrt(static_cast<double>(rank)) : alpha / static_cast<double>(rank);
}

bool LoraConfig::targets_module(std::string_view name) const {
  return std::ranges::any_of(targets, [&](const std::string& target) {
    return name.ends_with(target) && (name.size() == target.size() || name[name.size() - target.size() - 1] == '.');
  });
}

bool LoraConfig::targets_parameter(const ExpertStack& stack) const {
  // Its path in a layer depends on the version of transformers.
  return std::ranges::any_of(
      target_parameters, [&](const std::string& path) { return path == stack.name || path.ends_with("experts." + stack.name); });
}

void LoraConfig::keep_targets(const std::vector<std::string>& modules) {
  std::erase_if(targets, [&](const std::string& name) { return std::ranges::find(modules, last_name(name)) == modules.end(); });
}

void LoraConfig::set_targets(const std::string& list) {
  const auto& known = lora_modules();
  std::set<std::string> names;
  std::vector<std::string> paths;
  targets.clear();
  target_pattern.clear();
  if (list.find_first_of(kOfExpressions) != std::string::npos) {
    target_pattern = list;
    return;
  }
  for (const std::string& word : words_of(list)) {
    if (word == "all") {
      std::ranges::copy_if(known, std::inserter(names, names.end()), [](const std::string& name) { return !is_router(name); });
      continue;
    }
    const std::string_view name = last_name(word);
    if (std::ranges::find(known, name) == known.end())
      fail_config("lora_target '{}' is no linear module of this model: use all, or of {}", word, fmt::join(known, ", "));
    if (name == word)
      names.insert(word);
    else
      paths.push_back(word);
  }
  if (names.empty() && paths.empty()) fail_config("lora_target is empty: use all, or a list of modules");
  std::ranges::copy_if(known, std::back_inserter(targets), [&](const std::string& name) { return names.contains(name); });
  std::ranges::copy(paths, std::back_inserter(targets));
}

std::string LoraConfig::targets_text() const {
  return target_pattern.empty() ? fmt::format("{}", fmt::join(targets, ",")) : target_pattern;
}

LoraConfig LoraConfig::plain() const {
  LoraConfig twice = *this;
  const double factor = rslora ? std::sqrt(2.0) : 2.0;
  twice.pissa.reset();
  twice.rank *= 2;
  twice.alpha *= factor;
  for (auto& [key, number] : twice.ranks) number *= 2;
  for (auto& [key, number] : twice.alphas) number *= factor;
  return twice;
}

}  // namespace qft::model
