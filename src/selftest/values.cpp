#include "values.h"

#include "qft/device/upload.h"
#include "qft/ops/philox.h"

#include <limits>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/normal.h>
#include <ATen/ops/zeros.h>

namespace qft::selftest {
namespace {

at::TensorOptions on(c10::Device device, at::ScalarType type) {
  return at::TensorOptions().device(device).dtype(type);
}

}  // namespace

Values::Pair Values::pair(const at::Tensor& here, at::IntArrayRef shape, double scale) {
  const at::Tensor drawn = at::normal(0.0, scale, shape, at::detail::createCPUGenerator(seed_++), at::kDouble);
  here.copy_(drawn.to(type_));
  return {here, drawn.to(type_).to(at::kDouble)};
}

Values::Pair Values::normal(at::IntArrayRef shape, double scale) {
  return pair(at::empty(shape, on(device_, type_)), shape, scale);
}

Values::Pair Values::shifted(at::IntArrayRef shape, std::int64_t shift, double scale) {
  const std::int64_t count = c10::multiply_integers(shape);
  return pair(at::empty({count + shift}, on(device_, type_)).narrow(0, shift, count).view(shape), shape, scale);
}

Values::Pair Values::rows(std::int64_t count, std::int64_t width, double scale) {
  return pair(at::empty({count, width + 5}, on(device_, type_)).narrow(1, 3, width), {count, width}, scale);
}

at::Tensor Values::result_buffer(at::IntArrayRef shape, at::ScalarType type) const {
  return at::empty(shape, on(device_, type)).fill_(std::numeric_limits<double>::quiet_NaN());
}

at::Tensor Values::zeros(at::IntArrayRef shape, at::ScalarType type) const {
  return at::zeros(shape, on(device_, type));
}

at::Tensor Values::int32s(const std::vector<std::int32_t>& values) const {
  return device::upload(values, device_);
}

at::Tensor Values::int64s(const std::vector<std::int64_t>& values) const {
  return device::upload(values, device_);
}

at::Tensor exact_buffer(at::IntArrayRef shape) {
  return at::empty(shape, on(c10::kCPU, at::kDouble)).fill_(std::numeric_limits<double>::quiet_NaN());
}

at::Tensor exact(const at::Tensor& values) {
  return values.to(c10::kCPU, at::kDouble);
}

std::vector<std::int32_t> numbers(std::int64_t count, std::int64_t below) {
  std::vector<std::int32_t> all;
  for (std::int64_t i = 0; i < count; ++i)
    all.push_back(static_cast<std::int32_t>(ops::philox({static_cast<std::uint32_t>(i), 0, 0, 0}, {11, 13})[0] %
                                            static_cast<std::uint64_t>(below)));
  return all;
}

}  // namespace qft::selftest
