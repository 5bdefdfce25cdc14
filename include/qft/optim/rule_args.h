// optim_args, in transformers' form: "momentum=0.9,nesterov=true".
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace qft::optim {

/// Each reader throws ConfigError for a value that is none of its kind, naming the word.
class RuleArgs {
 public:
  RuleArgs() = default;
  /// Throws ConfigError where it is no list of word=value, or a word is given twice.
  explicit RuleArgs(std::string_view text);

  double number(std::string_view word, double otherwise, double least, double below) const;    ///< of [least, below)
  std::int64_t count(std::string_view word, std::int64_t otherwise, std::int64_t most) const;  ///< of [1, most]
  bool flag(std::string_view word, bool otherwise) const;
  std::string choice(std::string_view word, std::string_view otherwise, std::span<const std::string_view> choices) const;

  /// Throws ConfigError for a word that is none of `words`; `rule` is whose they are.
  void require_only(std::span<const std::string_view> words, std::string_view rule) const;

 private:
  const std::string* find(std::string_view word) const;
  std::map<std::string, std::string, std::less<>> values_;
};

}  // namespace qft::optim
