// Adapters: small trainable parameters beside frozen weights. Each adapter kind is a row of src/model/adapters/kinds.cpp.
#pragma once

#include "qft/model/lora_config.h"
#include "qft/model/oft_config.h"

#include <utility>

namespace qft::model {

/// Configuration of an adapter of any kind. At most one member is enabled().
struct AdapterConfig {
  LoraConfig lora = {};
  OftConfig oft = {};

  AdapterConfig() = default;
  AdapterConfig(LoraConfig config) : lora(std::move(config)) {}  // NOLINT(google-explicit-constructor): a kind is an adapter
  AdapterConfig(OftConfig config) : oft(std::move(config)) {}    // NOLINT(google-explicit-constructor)

  bool enabled() const { return lora.enabled() || oft.enabled(); }
  /// Returns the enabled kind's targets; LoRA's if none is enabled.
  const AdapterTargets& targets() const {
    if (oft.enabled()) return oft;
    return lora;
  }
  AdapterTargets& targets() {
    if (oft.enabled()) return oft;
    return lora;
  }
};

}  // namespace qft::model
