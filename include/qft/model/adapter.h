// An adapter: what trains beside frozen weights, of one of several kinds. A kind is a row of src/model/adapters/kinds.cpp.
#pragma once

#include "qft/model/lora_config.h"

namespace qft::model {

/// How an adapter of any kind is configured: at most one of its members is enabled().
struct AdapterConfig {
  LoraConfig lora = {};

  AdapterConfig() = default;
  AdapterConfig(LoraConfig config) : lora(std::move(config)) {}  // NOLINT(google-explicit-constructor): a kind is an adapter

  bool enabled() const { return lora.enabled(); }
  /// Of the kind that is enabled.
  const AdapterTargets& targets() const { return lora; }
  AdapterTargets& targets() { return lora; }
};

}  // namespace qft::model
