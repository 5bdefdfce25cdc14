// A model parameter as the optimizer's rules see it.
#pragma once

#include "qft/model/spec.h"
#include "qft/optim/rule.h"

#include <cstdint>

namespace qft::parallel {

optim::Param optimizer_param(const model::ParamSpec& param);

/// Returns the bytes of a unit's optimizer state on a rank that has `length` elements of the trainable buffer, without master
/// weights. Exact if the rule is uniform; otherwise the proportional share.
std::int64_t state_bytes(const optim::RuleSpec& rule, const optim::Hyper& hyper, const optim::Precision& precision,
                         const model::UnitSpec& unit, std::int64_t length);

}  // namespace qft::parallel
