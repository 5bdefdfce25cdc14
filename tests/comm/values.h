// Buffers of any element type on any device, filled and read as doubles.
#pragma once

#include "qft/core/dtype.h"
#include "qft/device/memory.h"
#include "qft/device/stream.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "support/device_under_test.h"
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

namespace qft::comm::test {

inline constexpr DType kAllTypes[] = {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64,
                                      DType::i32, DType::i16, DType::i8,  DType::u8};

/// Filled and read on the host; copied to the device and back in between.
class Values {
 public:
  Values(DType dtype, std::size_t count)
      : dtype_(dtype), count_(count), bytes_(count * size_of(dtype) + 1, '\x7f'), device_(qft::test::device_under_test()) {}

  /// Buffer for an operation. Order the current stream behind the operation before reading its result.
  void* data() { return at(0); }
  char* at(std::size_t i) {
    const std::size_t offset = i * size_of(dtype_);
    if (device_.is_cpu()) return bytes_.data() + offset;
    if (!buffer_) buffer_.emplace(bytes_.size(), device_);
    if (host_is_newer_) device::copy_bytes(buffer_->data(), bytes_.data(), bytes_.size(), device_);
    host_is_newer_ = false;
    device_is_newer_ = true;
    return static_cast<char*>(buffer_->data()) + offset;
  }
  std::size_t size() const { return count_; }

  void set(std::size_t i, double value) {
    fetch();
    host_is_newer_ = true;
    switch (dtype_) {
      case DType::f64:
        return put<double>(i, value);
      case DType::f32:
        return put<float>(i, value);
      case DType::f16:
        return put<c10::Half>(i, value);
      case DType::bf16:
        return put<c10::BFloat16>(i, value);
      case DType::i64:
        return put<std::int64_t>(i, value);
      case DType::i32:
        return put<std::int32_t>(i, value);
      case DType::i16:
        return put<std::int16_t>(i, value);
      case DType::i8:
        return put<std::int8_t>(i, value);
      default:
        return put<std::uint8_t>(i, value);
    }
  }
  double get(std::size_t i) const {
    fetch();
    switch (dtype_) {
      case DType::f64:
        return take<double>(i);
      case DType::f32:
        return take<float>(i);
      case DType::f16:
        return take<c10::Half>(i);
      case DType::bf16:
        return take<c10::BFloat16>(i);
      case DType::i64:
        return take<std::int64_t>(i);
      case DType::i32:
        return take<std::int32_t>(i);
      case DType::i16:
        return take<std::int16_t>(i);
      case DType::i8:
        return take<std::int8_t>(i);
      default:
        return take<std::uint8_t>(i);
    }
  }
  /// True if nothing wrote behind the end.
  bool intact() const {
    fetch();
    return bytes_.back() == '\x7f';
  }

 private:
  void fetch() const {
    if (!device_is_newer_) return;
    device::copy_bytes(bytes_.data(), buffer_->data(), bytes_.size(), device_);
    device::Stream::current(device_).synchronize();
    device_is_newer_ = false;
  }
  template <class T>
  void put(std::size_t i, double value) {
    const auto typed = static_cast<T>(value);
    std::memcpy(bytes_.data() + i * sizeof(T), &typed, sizeof(T));
  }
  template <class T>
  double take(std::size_t i) const {
    T typed;
    std::memcpy(&typed, bytes_.data() + i * sizeof(T), sizeof(T));
    return static_cast<double>(typed);
  }
  DType dtype_;
  std::size_t count_;
  mutable std::vector<char> bytes_;
  c10::Device device_;
  std::optional<device::DeviceBuffer> buffer_;
  bool host_is_newer_ = true;
  mutable bool device_is_newer_ = false;
};

/// Returns a small value that differs by rank and place and is exact in every type, even summed or multiplied over 4 ranks.
inline double value_of(int rank, std::size_t i) {
  return 1 + static_cast<double>((static_cast<std::size_t>(rank) * 3 + i * 7) % 3);
}

}  // namespace qft::comm::test
