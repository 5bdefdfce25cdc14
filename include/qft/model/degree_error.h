// The error for a degree of tensor or context parallelism that a model does not allow.
#pragma once

#include "qft/core/error.h"

#include <string>
#include <utility>

namespace qft::model {

/// ModelSpec::build() throws it. A caller with a run file can say where the key is.
class DegreeError : public ConfigError {
 public:
  DegreeError(const std::string& key, std::string reason)
      : ConfigError(fmt::format("{}: {}", key, reason)), key_(key), reason_(std::move(reason)) {}
  const std::string& key() const { return key_; }        ///< tensor_parallel or context_parallel
  const std::string& reason() const { return reason_; }  ///< "3 ranks cannot share ...: set tensor_parallel to 2 or 4"

 private:
  std::string key_, reason_;
};

}  // namespace qft::model
