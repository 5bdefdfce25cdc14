// Chooses the next token from logits: transformers' logits processors in their order (repetition penalty, temperature, top-k,
// top-p), then argmax or random sampling.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace qft::infer {

struct SamplerOptions {
  bool greedy = false;
  double temperature = 1.0;         ///< > 0
  std::int64_t top_k = 0;           ///< 0: all
  double top_p = 1.0;               ///< in (0, 1]
  double repetition_penalty = 1.0;  ///< > 0; Keskar et al. 2019
  std::uint64_t seed = 42;
  std::uint64_t stream = 0;  ///< different streams of a seed have different random numbers
};

/// Candidates for sampling: ids and their probabilities, the most probable first.
struct Candidates {
  std::vector<std::int32_t> ids;
  std::vector<double> probabilities;
};

class Sampler {
 public:
  /// Throws ConfigError if an option is out of range.
  explicit Sampler(const SamplerOptions& options);

  /// Returns the next token. `context`: prompt and answer so far, for the repetition penalty. Changes `logits`.
  std::int32_t next(std::span<float> logits, std::span<const std::int32_t> context);
  /// Returns the distribution from which next() samples (not for greedy). Changes `logits`.
  Candidates candidates(std::span<float> logits, std::span<const std::int32_t> context) const;

 private:
  void penalise(std::span<float> logits, std::span<const std::int32_t> context) const;
  double uniform();

  SamplerOptions options_;
  std::uint64_t draws_ = 0;
};

}  // namespace qft::infer
