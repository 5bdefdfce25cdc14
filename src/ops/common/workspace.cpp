#include "qft/ops/workspace.h"

#include "qft/core/error.h"
#include "qft/device/grow.h"

#include <algorithm>

#include <c10/core/ScalarType.h>
#include <c10/util/accumulate.h>

namespace qft::ops {

at::Tensor Workspace::get(std::string_view name, at::IntArrayRef shape, at::ScalarType dtype) {
  const std::int64_t bytes = c10::multiply_integers(shape) * static_cast<std::int64_t>(c10::elementSize(dtype));
  auto it = buffers_.find(name);
  if (it == buffers_.end()) it = buffers_.emplace(std::string(name), Buffer{}).first;
  at::Tensor& buffer = it->second.bytes;
  it->second.largest_request = std::max(it->second.largest_request, bytes);
  device::grow(buffer, bytes, device_);
  if (recording_ != nullptr) recording_->addresses_[&buffer] = buffer.const_data_ptr();
  return buffer.narrow(0, 0, bytes).view(dtype).view(shape);
}

Workspace::BufferAddresses Workspace::addresses_used_by(const std::function<void()>& body) {
  QFT_ASSERT(recording_ == nullptr, "calls of addresses_used_by() must not nest");
  BufferAddresses addresses;
  recording_ = &addresses;
  try {
    body();
  } catch (...) {
    recording_ = nullptr;
    throw;
  }
  recording_ = nullptr;
  return addresses;
}

bool Workspace::BufferAddresses::unmoved() const {
  return std::ranges::all_of(
      addresses_, [](const auto& place) { return place.first->defined() && place.first->const_data_ptr() == place.second; });
}

void Workspace::clear() {
  for (auto& [name, buffer] : buffers_) buffer = {};
}

std::int64_t Workspace::bytes_in_use() const {
  std::int64_t sum = 0;
  for (const auto& [name, buffer] : buffers_)
    if (buffer.bytes.defined()) sum += device_.is_cpu() ? buffer.largest_request : buffer.bytes.numel();
  return sum;
}

}  // namespace qft::ops
