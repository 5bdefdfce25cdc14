// A regular expression for full module names. Private to model.
#pragma once

#include <memory>
#include <string>

namespace qft::model {

/// Matches like Python's re.fullmatch, using PCRE2.
class NamePattern {
 public:
  /// Throws ConfigError, starting with `what`, if PCRE2 rejects the expression.
  NamePattern(std::string what, std::string expression);

  /// Throws ConfigError if the expression takes too long on this name.
  bool matches(const std::string& name) const;

 private:
  std::string what_, expression_;
  std::shared_ptr<void> code_;
};

}  // namespace qft::model
