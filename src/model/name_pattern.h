// A regular expression for full module names. Private to model.
#pragma once

#include <memory>
#include <string>

namespace qft::model {

/// Matches as Python's re.fullmatch does, by PCRE2.
class NamePattern {
 public:
  /// Throws ConfigError, which begins with `what`, where PCRE2 does not take the expression.
  NamePattern(std::string what, std::string expression);

  /// Throws ConfigError where the expression takes too long on this name.
  bool matches(const std::string& name) const;

 private:
  std::string what_, expression_;
  std::shared_ptr<void> code_;
};

}  // namespace qft::model
