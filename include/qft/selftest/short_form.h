// A self-test that takes seconds instead of minutes.
#pragma once

#include <string_view>

namespace qft::selftest {

/// A value for Options::only: one case of each kind of computation, in the types of training.
inline constexpr std::string_view kShortForm =
    "^kernels/.*/(fp32|bf16), 7 x 97|^products/linear with LoRA/(fp32|bf16), q, k, v of odd sizes|^attention/.*/(fp32|bf16), "
    ".*heads of 64$|^steps/(ddp|zero3)/(full|LoRA), (fp32|bf16), plain";

}  // namespace qft::selftest
