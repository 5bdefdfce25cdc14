#include "initial_values.h"

#include "qft/core/hash.h"
#include "qft/ops/philox.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include <ATen/ops/from_blob.h>

namespace qft::model {
namespace {

/// Returns 24 random bits per element of a parameter, as a number in [0, 1).
class Bits {
 public:
  Bits(std::uint64_t seed, const std::string& name)
      : site_(static_cast<std::uint32_t>(std::stoul(hash_hex(name).substr(0, 8), nullptr, 16))),
        key_{static_cast<std::uint32_t>(seed) ^ site_, static_cast<std::uint32_t>(seed >> 32) + site_} {}

  /// Returns the numbers of the four elements from 4 * block on; `draw` selects the first or a later number for each.
  std::array<double, 4> of(std::int64_t block, std::uint32_t draw) const {
    const auto words =
        ops::philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), site_, draw}, key_);
    std::array<double, 4> numbers{};
    for (std::size_t i = 0; i < 4; ++i) numbers[i] = static_cast<double>(words[i] >> 8) / (1 << 24);
    return numbers;
  }

 private:
  std::uint32_t site_;
  ops::PhiloxKey key_;
};

/// make(block) returns the four elements from 4 * block on.
template <class F>
void fill(const ParamSpec& param, const Shard& dst, const F& make) {
  std::vector<float> values(static_cast<std::size_t>(dst.values.numel()));
  const BoxesRange mine{param.boxes, static_cast<std::uint64_t>(dst.begin), static_cast<std::uint64_t>(dst.end())};
  const Box whole = Box::whole(param.shape);
  for_each_common_run(mine, {whole, 0, whole.elements()}, [&](const CommonRun& run) {
    const auto begin = static_cast<std::int64_t>(run.b), end = begin + static_cast<std::int64_t>(run.count);
    for (std::int64_t block = begin / 4; block * 4 < end; ++block) {
      const std::array<double, 4> four = make(block);
      for (std::int64_t i = std::max(begin, block * 4); i < std::min(end, block * 4 + 4); ++i)
        values[static_cast<std::size_t>(i - begin) + static_cast<std::size_t>(run.a)] =
            static_cast<float>(four[static_cast<std::size_t>(i % 4)]);
    }
  });
  dst.values.copy_(at::from_blob(values.data(), {dst.values.numel()}, at::kFloat));
}

}  // namespace

void fill_uniform(const ParamSpec& param, std::uint64_t seed, double bound, const Shard& dst) {
  const Bits bits(seed, param.name);
  fill(param, dst, [&](std::int64_t block) {
    std::array<double, 4> four = bits.of(block, 0);
    for (double& v : four) v = bound * (2.0 * v - 1.0);
    return four;
  });
}

void fill_normal(const ParamSpec& param, std::uint64_t seed, double deviation, const Shard& dst) {
  const Bits bits(seed, param.name);
  fill(param, dst, [&](std::int64_t block) {
    const std::array<double, 4> radius = bits.of(block, 0), angle = bits.of(block, 1);
    std::array<double, 4> four{};
    for (std::size_t i = 0; i < 4; ++i)  // 1 - u is positive
      four[i] = deviation * std::sqrt(-2.0 * std::log(1.0 - radius[i])) * std::cos(2.0 * std::numbers::pi * angle[i]);
    return four;
  });
}

}  // namespace qft::model
