// The key optim_args, in transformers' form: "momentum=0.9,nesterov=true".
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace qft::optim {

/// Parsed arguments. Each reader throws ConfigError with the word if its value has the wrong kind.
class RuleArgs {
 public:
  RuleArgs() = default;
  /// Throws ConfigError if `text` is not a list of word=value, or a word appears twice.
  explicit RuleArgs(std::string_view text);

  double number(std::string_view word, double otherwise, double least, double below) const;    ///< in [least, below)
  std::int64_t count(std::string_view word, std::int64_t otherwise, std::int64_t most) const;  ///< in [1, most]
  bool flag(std::string_view word, bool otherwise) const;
  std::string choice(std::string_view word, std::string_view otherwise, std::span<const std::string_view> choices) const;

  /// Throws ConfigError if a word is not in `words`; `rule` names their rule in the message.
  void require_only(std::span<const std::string_view> words, std::string_view rule) const;

 private:
  const std::string* find(std::string_view word) const;
  std::map<std::string, std::string, std::less<>> values_;
};

}  // namespace qft::optim
