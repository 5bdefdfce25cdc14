// The computing half of the adapter kinds; kinds.h is the other half. Private to model.
#pragma once

#include "qft/model/adapter.h"
#include "qft/model/row_sharing.h"
#include "qft/model/weights.h"

#include <cstdint>

namespace qft::model {

struct AdapterCode {
  bool (*enabled)(const AdapterConfig& config);
  /// Adds the unit's adapter parameters for a projection group to its projection. `site`: index of the group's first linear among
  /// the layer's linears.
  void (*bind)(const ModelSpec& spec, const UnitSpec& unit, const ParamGroup& group, std::uint32_t site, const UnitBuffers& flat,
               Projection& projection);
  /// Fills a parameter's initial values, which depend only on seed, name and index.
  void (*initialise)(const ParamSpec& param, std::uint64_t seed, const Shard& dst);
  /// Fills UnitBuffers::derived. Collective over the ranks that share matrices.
  void (*derive)(const ModelSpec& spec, const UnitSpec& unit, const UnitBuffers& flat, const RowSharing& tensor);
};

/// Returns nullptr if there is no adapter.
const AdapterCode* code_of(const AdapterConfig& config);

extern const AdapterCode kLoraCode, kOftCode;

}  // namespace qft::model
