// A parameter of a model as the optimizer's rules see it.
#pragma once

#include "qft/model/spec.h"
#include "qft/optim/rule.h"

#include <cstdint>

namespace qft::parallel {

optim::Param optimizer_param(const model::ParamSpec& param);

/// What a rank keeps of a unit's optimizer state where it has `length` elements of the trainable buffer: to the byte where the
/// rule is uniform, else its share. Without masters.
std::int64_t state_bytes(const optim::RuleSpec& rule, const optim::Hyper& hyper, const optim::Precision& precision,
                         const model::UnitSpec& unit, std::int64_t length);

}  // namespace qft::parallel
