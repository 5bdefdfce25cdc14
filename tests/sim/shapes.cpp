// Output shapes of operations without a Meta kernel whose CPU kernel would fail or be slow on zeros.
#include <map>

#include "operations.h"
#include <ATen/ATen.h>

namespace qft::sim {
namespace {

using Stack = torch::jit::Stack;
using Shapes = std::vector<at::Tensor>;

at::Tensor like(c10::IntArrayRef sizes, const at::Tensor& tensor) {
  return at::empty(sizes, tensor.options().device(at::kMeta));
}

Shapes index_select(const Stack& in) {
  const at::Tensor& x = in[0].toTensor();
  auto sizes = x.sizes().vec();
  if (!sizes.empty()) sizes[static_cast<std::size_t>(at::maybe_wrap_dim(in[1].toInt(), x.dim()))] = in[2].toTensor().numel();
  return {like(sizes, x)};
}

Shapes segment_reduce(const Stack& in) {
  const at::Tensor& x = in[0].toTensor();
  TORCH_CHECK(in[2].isTensor(), "sim: segment_reduce without lengths");
  const at::Tensor lengths = in[2].toTensor();
  const auto axis = in[5].toInt();
  auto sizes = lengths.sizes().vec();
  const auto rest = x.sizes().slice(static_cast<std::size_t>(axis) + 1);
  sizes.insert(sizes.end(), rest.begin(), rest.end());
  return {like(sizes, x)};
}

Shapes repeat_interleave(const Stack& in) {
  TORCH_CHECK(in[1].isInt(), "sim: repeat_interleave needs output_size: without it the host would have to wait for the counts");
  return {like({in[1].toInt()}, in[0].toTensor())};
}

}  // namespace

std::optional<Shapes> known_shapes(const std::string& op, const Stack& arguments) {
  static const std::map<std::string, Shapes (*)(const Stack&)> table{
      {"aten::index_select", &index_select},
      {"aten::segment_reduce", &segment_reduce},
      {"aten::repeat_interleave.Tensor", &repeat_interleave},
  };
  const auto found = table.find(op);
  if (found == table.end()) return std::nullopt;
  return found->second(arguments);
}

}  // namespace qft::sim
