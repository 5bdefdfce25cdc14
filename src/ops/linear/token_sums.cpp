#include "qft/ops/token_sums.h"

#include <algorithm>

#include "../common/tensors_cpu.h"
#include "token_sums_blocked_cpu.h"
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/addmm.h>
#include <c10/core/TensorOptions.h>

namespace qft::ops {
namespace {

/// Elements of the temporary if a sum's dtype differs from its operands'; one row may exceed this.
constexpr std::int64_t kChunkElements = std::int64_t{1} << 21;

/// out += part for contiguous tensors with different dtypes, which is slow in ATen on the CPU.
void add_part(const at::Tensor& out, const at::Tensor& part) {
  const bool done = out.scalar_type() == at::kFloat && out.is_contiguous() && cpu::with_kernel_type(part, [&]<class T>() {
                      const auto kernels = cpu::add_kernels<T>();
                      const std::int64_t width = part.size(1);
                      cpu::for_rows(part.size(0), width, [&](std::int64_t begin, std::int64_t end) {
                        kernels.add_to_float(data<float>(out) + begin * width, const_data<T>(part) + begin * width, 1.0F,
                                             (end - begin) * width);
                      });
                    });
  if (!done) out.add_(part);
}

/// out += a^T b as one half-precision product with fp32 sums; returns false if the device does not have one.
bool add_in_fp32(const TokenSum& s) {
  if (s.a.is_cpu() || s.out.scalar_type() != at::kFloat || s.a.scalar_type() == at::kDouble) return false;
  if (s.out.stride(1) != 1 && s.out.stride(0) != 1) return false;
  static const c10::OperatorHandle product = c10::Dispatcher::singleton().findSchemaOrThrow("aten::addmm", "dtype_out");
  if (!product.hasKernelForDispatchKey(s.a.options().computeDispatchKey())) return false;
  at::Tensor out = s.out;
  at::addmm_out(out, s.out, s.a.t(), s.b, at::kFloat);
  return true;
}

void add_by_aten(const TokenSum& s, Workspace& workspace) {
  if (s.out.scalar_type() == s.a.scalar_type() && s.out.is_contiguous()) {
    s.out.addmm_(s.a.t(), s.b);
    return;
  }
  if (s.out.scalar_type() != s.a.scalar_type() && add_in_fp32(s)) return;
  const std::int64_t rows = s.out.size(0), columns = s.out.size(1);
  const std::int64_t step = std::clamp<std::int64_t>(kChunkElements / std::max<std::int64_t>(columns, 1), 1, rows);
  for (std::int64_t first = 0; first < rows; first += step) {
    const std::int64_t n = std::min(step, rows - first);
    at::Tensor part = workspace.get("op.token_sum", {n, columns}, s.a.scalar_type());
    at::mm_out(part, s.a.narrow(1, first, n).t(), s.b);
    add_part(s.out.narrow(0, first, n), part);
  }
}

}  // namespace

void add_token_sums(std::span<const TokenSum> sums, Workspace& workspace) {
  if (blocked::add_token_sums(sums, workspace)) return;
  for (const TokenSum& s : sums) add_by_aten(s, workspace);
}

std::int64_t token_sum_bytes(std::int64_t tokens, std::int64_t rows, std::int64_t columns, at::ScalarType compute,
                             at::ScalarType grad) {
  const auto item = static_cast<std::int64_t>(c10::elementSize(compute));
  if (compute == at::kBFloat16 && blocked::available(compute)) return blocked::token_sum_bytes(tokens, rows, columns, grad);
  return compute == grad ? 0 : std::min(kChunkElements, rows * columns) * item;
}

}  // namespace qft::ops
