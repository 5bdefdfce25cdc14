// Builds a Value from a parser's events. Rejects repeated keys and deep nesting.
#pragma once

#include "qft/config/value.h"

#include <string>
#include <string_view>
#include <vector>

namespace qft::config {

class TreeBuilder {
 public:
  explicit TreeBuilder(std::string_view where) : where_(where) {}

  void null(int line);
  void scalar(std::string text, bool quoted, int line);
  void begin(Value::Kind kind, int line);
  void end();

  /// Throws ConfigError "where:line: message".
  [[noreturn]] void reject(int line, std::string_view message) const;

  /// Returns the finished document (null for an empty one).
  Value take() { return std::move(root_); }

 private:
  struct Level {
    Value value;
    std::string key{};  // map: the key that waits for its value
    bool has_key = false;
    int key_line = 0;
  };
  void add(Value value);
  bool expects_key() const;
  void take_key(std::string key, int line);

  std::string where_;
  std::vector<Level> open_;
  Value root_;
};

}  // namespace qft::config
