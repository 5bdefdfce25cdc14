#include "qft/checkpoint/verify.h"
#include "qft/core/convert.h"

#include <algorithm>
#include <cmath>

#include "tensor_source.h"
#include <fmt/format.h>

namespace qft::checkpoint {
namespace {

VerifyReport::NotFinite count(const TensorSource& source, const std::string& name) {
  const TensorSource::Tensor& tensor = source.tensors().at(name);
  VerifyReport::NotFinite found{name};
  const std::size_t room = std::min(tensor.elements, kPieceElements);
  std::vector<char> bytes(room * size_of(tensor.dtype));
  std::vector<double> values(room);
  for_each_piece(tensor.elements, [&](std::uint64_t begin, std::uint64_t end) {
    source.read(name, begin, end, bytes.data());
    to_double(tensor.dtype, bytes.data(), end - begin, values.data());
    for (std::uint64_t i = 0; i < end - begin; ++i) {
      found.nan += std::isnan(values[i]);
      found.infinite += std::isinf(values[i]);
    }
  });
  return found;
}

}  // namespace

void find_non_finite(const std::filesystem::path& dir, VerifyReport& report) {
  const TensorSource source = TensorSource::open(dir);
  for (const auto& [name, tensor] : source.tensors()) {
    if (!is_floating(tensor.dtype)) continue;
    VerifyReport::NotFinite found = count(source, name);
    if (found.nan == 0 && found.infinite == 0) continue;
    report.warnings.push_back(
        fmt::format("'{}': tensor '{}' has {} NaN and {} infinite values of {}: resume from an earlier checkpoint", dir.string(),
                    name, found.nan, found.infinite, tensor.elements));
    report.not_finite.push_back(std::move(found));
  }
}

}  // namespace qft::checkpoint
