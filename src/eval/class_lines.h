// What a classifier says of a text, as a line of JSON has it. Private to eval.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace qft::eval {

/// A number of JSON; "null" where it is not finite.
std::string float_text(float value);

/// Members of an object, from the values [N] that the head gives of a text: "label", the likeliest, those that are likelier than
/// not (a list), or, of a regression, the value or values themselves; null where values are no numbers; "probabilities" but of a
/// regression; "logits", the values.
std::string class_members(std::string_view problem_type, std::span<const float> values);

}  // namespace qft::eval
