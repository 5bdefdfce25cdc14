#include "qft/ops/dropout.h"

#include "qft/core/error.h"
#include "qft/ops/generic.h"

#include "../common/device_kernels.h"
#include "../common/philox_tensors.h"
#include "../common/tensors_cpu.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/stack.h>

namespace qft::ops {

namespace {

void check(const DropoutBackward& t, const RowIdentity& rows, double p) {
  require(p >= 0 && p < 1, "dropout probability {} is not in [0, 1)", p);
  const at::Tensor& any = t.any();
  QFT_ASSERT(rows.positions.defined() && rows.positions.numel() == any.size(0) && rows.sample_ids.numel() == any.size(0),
             "dropout over {} rows needs the identity of each", any.size(0));
  for (const at::Tensor* each : {&t.x, &t.out, &t.g, &t.gx})
    QFT_ASSERT(!each->defined() || (each->is_contiguous() && each->sizes() == any.sizes()),
               "dropout takes contiguous tensors of one shape");
}

}  // namespace

namespace generic {
namespace {

constexpr std::int64_t kLow = 0xFFFFFFFF;

/// High and low word of a 64-bit product of words held in int64; the product may wrap into the sign bit.
at::Tensor high(const at::Tensor& product) {
  return product.bitwise_right_shift(32).bitwise_and(kLow);
}
at::Tensor low(const at::Tensor& product) {
  return product.bitwise_and(kLow);
}

}  // namespace

at::Tensor philox_halves(const RowIdentity& rows, std::int64_t width, PhiloxKey key, std::int64_t first) {
  const std::int64_t counter = first / kCounterFeatures, skipped = first % kCounterFeatures;
  const std::int64_t blocks = (skipped + width + kCounterFeatures - 1) / kCounterFeatures;
  const at::Tensor ids = rows.sample_ids.unsqueeze(1);
  at::Tensor c0 = at::arange(counter, counter + blocks, ids.options()).unsqueeze(0),
             c1 = rows.positions.to(at::kLong).unsqueeze(1);
  at::Tensor c2 = low(ids), c3 = high(ids);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const at::Tensor p0 = c0 * static_cast<std::int64_t>(kPhiloxMultiplier0);
    const at::Tensor p1 = c2 * static_cast<std::int64_t>(kPhiloxMultiplier1);
    c0 = high(p1).bitwise_xor(c1).bitwise_xor(static_cast<std::int64_t>(key[0]));
    c1 = low(p1);
    c2 = high(p0).bitwise_xor(c3).bitwise_xor(static_cast<std::int64_t>(key[1]));
    c3 = low(p0);
    key[0] += kPhiloxWeyl0;
    key[1] += kPhiloxWeyl1;
  }
  const auto shape = {rows.positions.size(0), blocks};
  const at::Tensor words = at::stack({c0.expand(shape), c1.expand(shape), c2.expand(shape), c3.expand(shape)}, -1);
  return at::stack({words.bitwise_and(0xFFFF), words.bitwise_right_shift(16)}, -1).flatten(1).narrow(1, skipped, width);
}

at::Tensor dropout(const at::Tensor& x, const DropoutKey& key, const RowIdentity& rows, double p) {
  const at::Tensor halves = philox_halves(rows, x.size(1), key.philox_key(), key.first_feature);
  const at::Tensor mask = halves.ge(static_cast<std::int64_t>(dropout_threshold(p)));
  return (x.to(accumulate_dtype(x.scalar_type())) * mask * (1.0 / (1.0 - p))).to(x.scalar_type());
}

}  // namespace generic

namespace {

/// Returns false if there is no kernel.
bool dropout_by_kernel(const DropoutBackward& t, const DropoutKey& key, const RowIdentity& rows, double p) {
  const at::Tensor& any = t.any();
  const bool done = cpu::with_kernel_type(any, [&]<class T>() {
    const Dropout<T> args = dropout_args<T>(t, key, rows, p);
    const auto kernels = cpu::dropout_kernels<T>();
    cpu::for_rows(any.size(0), any.size(1), [&](std::int64_t begin, std::int64_t end) { kernels.rows(args, begin, end); });
  });
  if (done) return true;
  const DeviceKernels* kernels = device_kernels(any);
  return kernels != nullptr && kernels->dropout(t, key, rows, p);
}

void run(const DropoutBackward& t, const DropoutKey& key, const RowIdentity& rows, double p) {
  check(t, rows, p);
  if (dropout_by_kernel(t, key, rows, p)) return;
  if (t.x.defined()) t.out.copy_(generic::dropout(t.x, key, rows, p));
  if (t.g.defined()) t.gx.add_(generic::dropout(t.g, key, rows, p));
}

}  // namespace

void dropout_forward(const at::Tensor& x, const DropoutKey& key, const RowIdentity& rows, double p, const at::Tensor& out) {
  run({x, out, {}, {}}, key, rows, p);
}

void dropout_backward(const DropoutBackward& t, const DropoutKey& key, const RowIdentity& rows, double p) {
  if (t.any().defined()) run(t, key, rows, p);
}

}  // namespace qft::ops
