// Values that checks compute on, on the device, and the same in fp64 on the CPU.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::selftest {

/// Of one device and type.
class Values {
 public:
  Values(c10::Device device, at::ScalarType type) : device_(device), type_(type) {}

  /// A tensor of the device, and what it holds, in fp64 on the CPU.
  struct Pair {
    at::Tensor here, exact;
  };
  /// Normal values, alike in every process.
  Pair normal(at::IntArrayRef shape, double scale = 1.0);
  /// The same that begin `shift` elements behind an aligned address.
  Pair shifted(at::IntArrayRef shape, std::int64_t shift, double scale = 1.0);
  /// Rows of `width` within rows of more columns, at an odd place.
  Pair rows(std::int64_t count, std::int64_t width, double scale = 1.0);

  /// For results: filled with NaN, so that what nobody wrote is seen.
  at::Tensor room(at::IntArrayRef shape) const { return room(shape, type_); }
  at::Tensor room(at::IntArrayRef shape, at::ScalarType type) const;
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

/// fp64 on the CPU, for oracles.
at::Tensor exact_room(at::IntArrayRef shape);
at::Tensor exact(const at::Tensor& values);
/// 0, 1, 2, ... without order: `count` numbers below `below`, from the index alone.
std::vector<std::int32_t> numbers(std::int64_t count, std::int64_t below);

}  // namespace qft::selftest
