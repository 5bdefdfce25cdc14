// The text of a ConfigError, for tests of what is refused.
#pragma once

#include "qft/core/error.h"

#include <string>

namespace qft::model {

/// Returns the message of the ConfigError that `f` throws; empty if it throws none.
template <class F>
std::string config_error(const F& f) {
  try {
    f();
  } catch (const ConfigError& e) {
    return e.what();
  }
  return {};
}

inline bool mentions(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

}  // namespace qft::model
