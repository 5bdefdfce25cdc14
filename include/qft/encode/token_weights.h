// What the parts of an answer count in the loss: the schemes of the key loss_scale, by ms-swift's names and rules
// (swift/loss_scale).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qft::encode {

/// A part of a text whose tokens count alike.
struct WeightedText {
  std::string_view text;
  float weight = 1.0F;
};

/// The ids before `end`, from the end of the run before, count alike.
struct WeightRun {
  std::int32_t end = 0;
  float weight = 1.0F;
};

struct WeightScheme;

/// Immutable and thread-safe.
class TokenWeights {
 public:
  TokenWeights() = default;
  /// `schemes`: names joined by '+', applied one after the other: each to every part that those before it left, with their
  /// weights multiplied. Empty: all counts 1. Throws ConfigError with the names that there are.
  explicit TokenWeights(std::string_view schemes);

  bool empty() const { return schemes_.empty(); }
  /// `text` in parts, end to end and none empty; none of them for an empty text. `question`: the user's text before it, by which
  /// agentflan weighs; empty where there is none.
  std::vector<WeightedText> split(std::string_view text, std::string_view question) const;

 private:
  std::vector<const WeightScheme*> schemes_;
};

/// The schemes' names, in the order of their table.
std::vector<std::string_view> weight_scheme_names();

}  // namespace qft::encode
