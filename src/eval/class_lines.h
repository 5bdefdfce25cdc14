// A classifier's output for one text as members of a JSON line. Private to eval.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace qft::eval {

/// Returns a JSON number; "null" if `value` is not finite.
std::string float_text(float value);

/// Returns JSON members for the values [N] that the head computed for a text. "label": the likeliest class, or the list of
/// classes above one half (multi-label), or the value or values (regression); null if a value is NaN. "probabilities": not for a
/// regression. "logits": the values.
std::string class_members(std::string_view problem_type, std::span<const float> values);

/// Returns the member "embeddings" for the vectors [S * width] of an item's texts.
std::string vector_members(std::int64_t width, std::span<const float> values);
/// Returns the members "scores" and "probabilities" for the scores of a query's documents.
std::string ranking_members(std::span<const float> scores);

}  // namespace qft::eval
