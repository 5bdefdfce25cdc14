// Typed reading of config.json, and its known keys by kind of architecture. Private to model.
#pragma once

#include "qft/core/error.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "architecture.h"
#include <nlohmann/json.hpp>

namespace qft::model {

/// Upper limit for counts of columns or rows: the product of three does not overflow.
inline constexpr std::int64_t kMaxSize = 1 << 20;

/// Typed access to keys; errors name file and key.
class ConfigReader {
 public:
  ConfigReader(const nlohmann::json& object, std::string where) : object_(object), where_(std::move(where)) {}

  std::int64_t integer(const char* key, std::optional<std::int64_t> fallback = {}) const {
    const nlohmann::json* value = find(key);
    if (value == nullptr) {
      require(fallback.has_value(), "{}: key '{}' is missing", where_, key);
      return *fallback;
    }
    require(value->is_number_integer() && value->get<std::int64_t>() >= 0 && value->get<std::int64_t>() < (1LL << 40),
            "{}: '{}' is {}, expected a non-negative integer", where_, key, value->dump());
    return value->get<std::int64_t>();
  }
  std::int64_t positive(const char* key, std::optional<std::int64_t> fallback = {}) const {
    const std::int64_t value = integer(key, fallback);
    require(value > 0, "{}: '{}' is 0, expected a positive integer", where_, key);
    return value;
  }
  /// Reads a size of the model, at most kMaxSize.
  std::int64_t size(const char* key, std::optional<std::int64_t> fallback = {}) const {
    const std::int64_t value = positive(key, fallback);
    require(value <= kMaxSize, "{}: '{}' is {}, more than {}: is the file damaged?", where_, key, value, kMaxSize);
    return value;
  }
  double number(const char* key, double fallback) const {
    const nlohmann::json* value = find(key);
    if (value == nullptr) return fallback;
    require(value->is_number(), "{}: '{}' is {}, expected a number", where_, key, value->dump());
    return value->get<double>();
  }
  bool boolean(const char* key, bool fallback) const {
    const nlohmann::json* value = find(key);
    if (value == nullptr) return fallback;
    require(value->is_boolean(), "{}: '{}' is {}, expected true or false", where_, key, value->dump());
    return value->get<bool>();
  }
  std::string text(const char* key, const std::string& fallback) const {
    const nlohmann::json* value = find(key);
    if (value == nullptr) return fallback;
    require(value->is_string(), "{}: '{}' is {}, expected a string", where_, key, value->dump());
    return value->get<std::string>();
  }
  bool is_null(const char* key) const { return object_.contains(key) && find(key) == nullptr; }
  const nlohmann::json* find(const char* key) const {
    const auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }
  const std::string& where() const { return where_; }
  const nlohmann::json& object() const { return object_; }

 private:
  const nlohmann::json& object_;
  std::string where_;
};

/// Throws Error, naming the key, if a key changes the computation and is not implemented. Adds a line to `notes` with the keys
/// that have a value but are not read. `text`: the decoder's configuration; `whole` itself unless the model is part of a larger
/// one.
void check_config_keys(const ConfigReader& whole, const ConfigReader& text, const Architecture& arch,
                       std::vector<std::string>& notes);

}  // namespace qft::model
