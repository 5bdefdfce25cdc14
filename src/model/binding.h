// Views of a unit's parameters by their paths. Private to model.
#pragma once

#include "qft/model/weights.h"

#include <string_view>

namespace qft::model {

/// nullptr: the unit has none at this path.
const ParamSpec* find_param(const UnitSpec& unit, std::string_view path);
/// `numel` elements from a parameter on in the flat buffer that holds it, and their gradient.
Weight view_of(const ParamSpec& first, std::int64_t numel, at::IntArrayRef shape, const UnitBuffers& flat);
/// A parameter in the shape of its box.
Weight view_of(const ParamSpec& param, const UnitBuffers& flat);
/// The outputs of a linear that this rank computes.
std::int64_t rows_of(const UnitSpec& unit, const LinearSpec& linear);

}  // namespace qft::model
