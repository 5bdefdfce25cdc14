#include "narrow_products_cpu.h"

#include <algorithm>
#include <vector>

#include "../common/packing_cpu.h"
#include "../common/tensor_args.h"

namespace qft::ops::narrow {
namespace {

using blocked::padded;
using blocked::scratch;
using cpu::Bf16;
using cpu::kNarrowUnit;

/// Rows, or columns, per task.
constexpr std::int64_t kRows = 32, kColumns = 256;

/// Returns b [k, n] as [n, padded][k].
const float* transposed_factors(const at::Tensor& b, Workspace& workspace) {
  const std::int64_t k = b.size(0), n = b.size(1), count = padded(n, kNarrowUnit);
  auto* factors = scratch<float>(workspace, "op.narrow_factors", count * k);
  const auto kernels = cpu::packing_kernels<Bf16, float>();
  if (b.stride(1) == 1)
    kernels.transpose({const_data<Bf16>(b), b.stride(0), k, n}, k, factors);
  else
    kernels.copy({const_data<Bf16>(b), b.stride(1), n, k}, n, k, factors);
  std::fill(factors + n * k, factors + count * k, 0.0F);
  return factors;
}

/// Left-side elements in a sum over `tokens` tokens.
std::int64_t sum_factors(std::int64_t tokens, std::int64_t rows) {
  return tokens * padded(rows, kNarrowUnit);
}

}  // namespace

bool supports(const blocked::Product& p) {
  return p.b.size(1) <= cpu::kMaxNarrow && p.terms.empty() && !p.bias.defined();
}

bool supports(const TokenSum& s) {
  return supports(s.a.size(1), s.out.scalar_type());
}

bool supports(std::int64_t rows, at::ScalarType grad) {
  return rows <= cpu::kMaxNarrow && grad == at::kFloat;
}

std::int64_t token_sum_bytes(std::int64_t tokens, std::int64_t rows) {
  return 2 * sum_factors(tokens, rows) * static_cast<std::int64_t>(sizeof(float));
}

void multiply(const blocked::Product& p, Workspace& workspace) {
  const cpu::NarrowDots args{
      const_data<Bf16>(p.a),       p.a.stride(0),     p.a.size(1),    transposed_factors(p.b, workspace), p.b.size(1),
      static_cast<float>(p.scale), data<Bf16>(p.out), p.out.stride(0)};
  const std::int64_t m = p.a.size(0);
  const auto kernels = cpu::narrow_kernels();
  blocked::for_tasks((m + kRows - 1) / kRows,
                     [&](std::int64_t task, std::int64_t) { kernels.dots(args, task * kRows, std::min(m, (task + 1) * kRows)); });
}

void add_token_sums(std::span<const TokenSum> sums, Workspace& workspace) {
  if (sums.empty()) return;
  std::int64_t room = 0, tasks = 0;
  const auto tasks_of = [](const TokenSum& s) { return (s.b.size(1) + kColumns - 1) / kColumns; };
  const auto factors_of = [](const TokenSum& s) { return sum_factors(s.a.size(0), s.a.size(1)); };
  for (const TokenSum& s : sums) {
    room += factors_of(s);
    tasks += tasks_of(s);
  }
  auto* factors = scratch<float>(workspace, "op.narrow_factors", room);
  std::vector<cpu::NarrowSums> all;
  for (const TokenSum& s : sums) {
    const std::int64_t tokens = s.a.size(0), m = s.a.size(1);
    cpu::packing_kernels<Bf16, float>().copy({const_data<Bf16>(s.a), s.a.stride(0), tokens, m}, tokens, padded(m, kNarrowUnit),
                                             factors);
    all.push_back(
        {const_data<Bf16>(s.b), s.b.stride(0), tokens, factors, m, s.out.data_ptr<float>(), s.out.stride(0), s.out.stride(1)});
    factors += factors_of(s);
  }
  const auto kernels = cpu::narrow_kernels();
  blocked::for_tasks(tasks, [&](std::int64_t task, std::int64_t) {
    std::size_t i = 0;
    for (; task >= tasks_of(sums[i]); ++i) task -= tasks_of(sums[i]);
    kernels.sums(all[i], task * kColumns, std::min(sums[i].b.size(1), (task + 1) * kColumns));
  });
}

}  // namespace qft::ops::narrow
