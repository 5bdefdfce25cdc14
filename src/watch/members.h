// Reads members of JSON that another program may have written: a member of an unexpected type counts as absent. Private to watch.
#pragma once

#include <cmath>
#include <string>

#include <nlohmann/json.hpp>

namespace qft::watch {

/// Returns null if it is absent.
inline nlohmann::json member(const nlohmann::json& object, const char* key) {
  const auto it = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && it != object.end() ? *it : nlohmann::json();
}

/// Returns NaN if it is absent.
inline double number_in(const nlohmann::json& object, const char* key) {
  const nlohmann::json value = member(object, key);
  return value.is_number() ? value.get<double>() : NAN;
}

inline std::string text_in(const nlohmann::json& object, const char* key, const std::string& otherwise = {}) {
  const nlohmann::json value = member(object, key);
  return value.is_string() ? value.get<std::string>() : otherwise;
}

}  // namespace qft::watch
