// Views of a unit's parameters by path. Private to model.
#pragma once

#include "qft/model/weights.h"

#include <string_view>

namespace qft::model {

/// Returns nullptr if the unit has no parameter at this path.
const ParamSpec* find_param(const UnitSpec& unit, std::string_view path);
/// Returns `numel` elements, starting with parameter `first`, in the flat buffer that holds it, and their gradient.
Weight view_of(const ParamSpec& first, std::int64_t numel, at::IntArrayRef shape, const UnitBuffers& flat);
/// Returns a parameter in its local shape.
Weight view_of(const ParamSpec& param, const UnitBuffers& flat);
/// Returns how many of a linear's outputs this rank computes.
std::int64_t rows_of(const UnitSpec& unit, const LinearSpec& linear);

}  // namespace qft::model
