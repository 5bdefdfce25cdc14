#include "qft/infer/sampler.h"

#include "qft/core/error.h"
#include "qft/ops/philox.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_set>

namespace qft::infer {

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
  if (!options.greedy && !(options.temperature > 0.0))
    fail_config("temperature {} must be positive for random sampling", options.temperature);
  if (!(options.top_p > 0.0 && options.top_p <= 1.0)) fail_config("top_p {} must be in (0, 1]", options.top_p);
  if (options.top_k < 0) fail_config("top_k {} must not be negative (0: no limit)", options.top_k);
  if (!(options.repetition_penalty > 0.0))
    fail_config("repetition_penalty {} must be positive (1: none)", options.repetition_penalty);
}

void Sampler::penalise(std::span<float> logits, std::span<const std::int32_t> context) const {
  if (options_.repetition_penalty == 1.0) return;
  const auto penalty = static_cast<float>(options_.repetition_penalty);
  const std::unordered_set<std::int32_t> seen(context.begin(), context.end());
  for (const std::int32_t id : seen) {
    if (id < 0 || static_cast<std::size_t>(id) >= logits.size()) continue;
    float& l = logits[static_cast<std::size_t>(id)];
    l = l < 0.0f ? l * penalty : l / penalty;
  }
}

Candidates Sampler::candidates(std::span<float> logits, std::span<const std::int32_t> context) const {
  penalise(logits, context);
  const std::size_t limit =
      options_.top_k > 0 ? std::min(logits.size(), static_cast<std::size_t>(options_.top_k)) : logits.size();
  Candidates c;
  c.ids.resize(logits.size());
  std::iota(c.ids.begin(), c.ids.end(), 0);
  const auto above = [&](std::int32_t a, std::int32_t b) {
    const float la = logits[static_cast<std::size_t>(a)], lb = logits[static_cast<std::size_t>(b)];
    return la != lb ? la > lb : a < b;
  };
  std::partial_sort(c.ids.begin(), c.ids.begin() + static_cast<std::ptrdiff_t>(limit), c.ids.end(), above);
  c.ids.resize(limit);
  const double top = logits[static_cast<std::size_t>(c.ids.front())];
  double sum = 0.0;
  for (const std::int32_t id : c.ids) {
    c.probabilities.push_back(std::exp((logits[static_cast<std::size_t>(id)] - top) / options_.temperature));
    sum += c.probabilities.back();
  }
  // The smallest set of tokens with total probability of at least top_p; the most probable token always stays.
  double mass = 0.0;
  std::size_t kept = 0;
  while (kept < c.ids.size() && (kept == 0 || mass < options_.top_p)) mass += c.probabilities[kept++] / sum;
  c.ids.resize(kept);
  c.probabilities.resize(kept);
  for (double& p : c.probabilities) p /= mass * sum;
  return c;
}

double Sampler::uniform() {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
  const auto words = ops::philox({low(draws_), high(draws_), low(options_.stream), high(options_.stream)},
                                 {low(options_.seed), high(options_.seed)});
  ++draws_;
  return (static_cast<double>(words[0]) * 4294967296.0 + static_cast<double>(words[1])) / 18446744073709551616.0;
}

std::int32_t Sampler::next(std::span<float> logits, std::span<const std::int32_t> context) {
  if (options_.greedy) {
    penalise(logits, context);
    return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
  const Candidates c = candidates(logits, context);
  double left = uniform();
  for (std::size_t i = 0; i < c.ids.size(); ++i)
    if ((left -= c.probabilities[i]) < 0.0) return c.ids[i];
  return c.ids.back();
}

}  // namespace qft::infer
