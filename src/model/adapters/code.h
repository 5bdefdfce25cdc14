// What the kinds of adapters compute with: the other half of kinds.h. Private to model.
#pragma once

#include "qft/model/adapter.h"
#include "qft/model/weights.h"

#include <cstdint>

namespace qft::model {

struct AdapterCode {
  bool (*enabled)(const AdapterConfig& config);
  /// Adds the unit's parameters for a group of linears to its projection. `site`: of the group's first linear, among those of the
  /// layer.
  void (*bind)(const ModelSpec& spec, const UnitSpec& unit, const ParamGroup& group, std::uint32_t site, const UnitBuffers& flat,
               Projection& projection);
  /// Initial values of a parameter: a function of seed, name and index alone.
  void (*initialise)(const ParamSpec& param, std::uint64_t seed, const Shard& dst);
  /// Fills UnitBuffers::derived.
  void (*derive)(const ModelSpec& spec, const UnitSpec& unit, const UnitBuffers& flat);
};

/// nullptr: there is no adapter.
const AdapterCode* code_of(const AdapterConfig& config);

extern const AdapterCode kLoraCode, kOftCode;

}  // namespace qft::model
