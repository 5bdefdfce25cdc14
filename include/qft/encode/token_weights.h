// Weights of the parts of an answer in the loss: the schemes of the key loss_scale, by ms-swift's names and rules
// (swift/loss_scale).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace qft::encode {

/// A part of a text; all its tokens have the same weight.
struct WeightedText {
  std::string_view text;
  float weight = 1.0F;
};

/// The ids from the previous run's end to `end` have the same weight.
struct WeightRun {
  std::int32_t end = 0;
  float weight = 1.0F;
};

struct WeightScheme;

/// Immutable and thread-safe.
class TokenWeights {
 public:
  TokenWeights() = default;
  /// `schemes`: names joined by '+', applied in order. Each scheme splits every part that the previous ones left, and weights
  /// multiply. Empty: every weight is 1. Throws ConfigError with the list of names.
  explicit TokenWeights(std::string_view schemes);

  bool empty() const { return schemes_.empty(); }
  /// Splits `text` into adjacent parts, none of them empty; returns none for an empty text. `question`: the preceding user
  /// text, which agentflan uses; empty if there is none.
  std::vector<WeightedText> split(std::string_view text, std::string_view question) const;

 private:
  std::vector<const WeightScheme*> schemes_;
};

/// The schemes' names, in table order.
std::vector<std::string_view> weight_scheme_names();

}  // namespace qft::encode
