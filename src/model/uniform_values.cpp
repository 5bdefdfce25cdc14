#include "uniform_values.h"

#include "qft/core/hash.h"
#include "qft/ops/philox.h"

#include <algorithm>
#include <string>
#include <vector>

#include <ATen/ops/from_blob.h>

namespace qft::model {
namespace {

/// Elements [begin, end) of uniform values in [-bound, bound): 24 random bits each, from (seed, name, index) alone.
std::vector<float> uniform(std::uint64_t seed, const std::string& name, std::int64_t begin, std::int64_t end, double bound) {
  const auto site = static_cast<std::uint32_t>(std::stoul(hash_hex(name).substr(0, 8), nullptr, 16));
  const ops::PhiloxKey key = {static_cast<std::uint32_t>(seed) ^ site, static_cast<std::uint32_t>(seed >> 32) + site};
  std::vector<float> values(static_cast<std::size_t>(end - begin));
  for (std::int64_t block = begin / 4; block * 4 < end; ++block) {
    const auto words = ops::philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), site, 0}, key);
    for (std::int64_t i = std::max(begin, block * 4); i < std::min(end, block * 4 + 4); ++i)
      values[static_cast<std::size_t>(i - begin)] =
          static_cast<float>(bound * (2.0 * static_cast<double>(words[static_cast<std::size_t>(i % 4)] >> 8) / (1 << 24) - 1.0));
  }
  return values;
}

}  // namespace

void fill_uniform(const ParamSpec& param, std::uint64_t seed, double bound, const Shard& dst) {
  std::vector<float> values(static_cast<std::size_t>(dst.values.numel()));
  const BoxRange mine{param.box, static_cast<std::uint64_t>(dst.begin), static_cast<std::uint64_t>(dst.end())};
  const Box whole = Box::whole(param.shape);
  for_each_common_run(mine, {whole, 0, whole.elements()}, [&](const CommonRun& run) {
    const auto begin = static_cast<std::int64_t>(run.b);
    const auto part = uniform(seed, param.name, begin, begin + static_cast<std::int64_t>(run.count), bound);
    std::copy(part.begin(), part.end(), values.begin() + static_cast<std::ptrdiff_t>(run.a));
  });
  dst.values.copy_(at::from_blob(values.data(), {dst.values.numel()}, at::kFloat));
}

}  // namespace qft::model
