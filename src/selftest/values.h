// Makes inputs of checks: on the device, and the same values in fp64 on the CPU.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::selftest {

/// Makes values of one device and type.
class Values {
 public:
  Values(c10::Device device, at::ScalarType type) : device_(device), type_(type) {}

  /// A tensor on the device, and its values in fp64 on the CPU.
  struct Pair {
    at::Tensor here, exact;
  };
  /// Returns normally distributed values, the same in every process.
  Pair normal(at::IntArrayRef shape, double scale = 1.0);
  /// The same, starting `shift` elements after an aligned address.
  Pair shifted(at::IntArrayRef shape, std::int64_t shift, double scale = 1.0);
  /// Returns rows of `width` within rows of more columns, at an odd offset.
  Pair rows(std::int64_t count, std::int64_t width, double scale = 1.0);

  /// Returns memory for results, filled with NaN so that unwritten elements show.
  at::Tensor result_buffer(at::IntArrayRef shape) const { return result_buffer(shape, type_); }
  at::Tensor result_buffer(at::IntArrayRef shape, at::ScalarType type) const;
  at::Tensor zeros(at::IntArrayRef shape, at::ScalarType type) const;
  at::Tensor int32s(const std::vector<std::int32_t>& values) const;
  at::Tensor int64s(const std::vector<std::int64_t>& values) const;

  c10::Device device() const { return device_; }
  at::ScalarType type() const { return type_; }
  /// The type of rstd, lse and log-probabilities.
  at::ScalarType statistics() const { return type_ == at::kDouble ? at::kDouble : at::kFloat; }

 private:
  Pair pair(const at::Tensor& here, at::IntArrayRef shape, double scale);

  c10::Device device_;
  at::ScalarType type_;
  std::uint64_t seed_ = 1;
};

/// Tensors in fp64 on the CPU, for oracles.
at::Tensor exact_buffer(at::IntArrayRef shape);
at::Tensor exact(const at::Tensor& values);
/// Returns `count` unordered numbers from 0 to below `below`, derived from the index only.
std::vector<std::int32_t> numbers(std::int64_t count, std::int64_t below);

}  // namespace qft::selftest
