#include "qft/model/arena.h"

#include "qft/core/error.h"
#include "qft/device/grow.h"

#include <algorithm>
#include <numeric>

#include <ATen/ops/empty.h>

namespace qft::model {
namespace {

constexpr std::int64_t kAlign = 256;  // bytes: a multiple of a cache line and of a CUDA transaction

/// Returns bytes. The host allocates pages on first touch; a device allocates everything at once.
std::int64_t least_chunk(c10::Device device) {
  return device.is_cpu() ? 16 << 20 : 1 << 20;
}

std::int64_t sum(const std::vector<std::int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), INT64_C(0));
}

}  // namespace

void Arena::reserve(std::int64_t bytes) {
  QFT_ASSERT(current_ == 0 && used_ == 0, "reserve() is only allowed while nothing is allocated");
  if (chunks_.size() == 1 && chunks_[0].numel() >= bytes) return;
  chunks_.resize(1);
  device::grow(chunks_[0], bytes, device_);
  touched_ = {0};
}

at::Tensor Arena::alloc(at::IntArrayRef shape, at::ScalarType dtype) {
  std::int64_t numel = 1;
  for (const auto d : shape) numel *= d;
  const std::int64_t item = static_cast<std::int64_t>(c10::elementSize(dtype));
  const std::int64_t bytes = std::max<std::int64_t>((numel * item + kAlign - 1) / kAlign * kAlign, kAlign);
  while (current_ < chunks_.size() && used_ + bytes > chunks_[current_].numel()) {
    ++current_;
    used_ = 0;
  }
  if (current_ == chunks_.size()) {
    chunks_.push_back(at::empty({std::max(bytes, least_chunk(device_))}, at::TensorOptions().dtype(at::kByte).device(device_)));
    touched_.push_back(0);
    used_ = 0;
  }
  const std::int64_t begin = used_;
  used_ += bytes;
  touched_[current_] = std::max(touched_[current_], used_);
  return chunks_[current_].narrow(0, begin, numel * item).view(dtype).view(shape);
}

void Arena::release(Mark mark) {
  current_ = mark.chunk;
  used_ = mark.used;
  // The arena is empty and has grown in pieces. A single chunk serves the next step without the gaps at chunk ends.
  if (current_ == 0 && used_ == 0 && chunks_.size() > 1) reserve(sum(touched_));
}

std::int64_t Arena::reserved() const {
  std::int64_t total = 0;
  for (const auto& chunk : chunks_) total += chunk.numel();
  return total;
}

std::int64_t Arena::bytes_in_use() const {
  return device_.is_cpu() ? sum(touched_) : reserved();
}

}  // namespace qft::model
