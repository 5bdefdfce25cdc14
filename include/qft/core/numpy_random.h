// NumPy's two random generators, with the methods that Hugging Face datasets uses: a seed chooses the same records as in
// LLaMA-Factory.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <vector>

namespace qft::numpy {

/// numpy.random.RandomState(seed): MT19937 with the legacy methods.
class LegacyRandom {
 public:
  explicit LegacyRandom(std::uint32_t seed) : engine_(seed) {}

  /// Same as numpy's permutation(n).
  std::vector<std::int64_t> permutation(std::int64_t n);
  /// Same as numpy's choice(n, count), with replacement.
  std::vector<std::int64_t> choice(std::int64_t n, std::int64_t count);

 private:
  std::uint64_t below(std::uint64_t n);  // uniform in [0, n)
  std::mt19937 engine_;                  // numpy's init_by_seed is the standard's seeding
};

/// numpy.random.default_rng(seed): PCG64 seeded by SeedSequence (O'Neill, "PCG", HMC-CS-2014-0905; NEP 19).
class Generator {
 public:
  explicit Generator(std::uint64_t seed);

  /// Same as numpy's permutation(n).
  std::vector<std::int64_t> permutation(std::int64_t n);
  /// Returns one element of numpy's choice(len(p), size, p=probabilities): repeated calls give the elements of one numpy call.
  std::size_t choice(std::span<const double> probabilities);

 private:
  std::uint64_t next64();
  std::uint32_t next32();
  std::uint64_t below(std::uint64_t n);  // uniform in [0, n)

  unsigned __int128 state_ = 0, increment_ = 0;
  std::optional<std::uint32_t> half_;  // upper half of a number; its lower half is already used
};

}  // namespace qft::numpy
