#include "qft/device/staged_copy.h"

#include "qft/core/error.h"

#include <algorithm>
#include <cstring>
#include <exception>

#include <ATen/ops/empty.h>

namespace qft::device {
namespace {

constexpr std::size_t kPiece = StagedCopy::kBytes / 2;

std::size_t pieces_of(std::size_t bytes) {
  return (bytes + kPiece - 1) / kPiece;
}
std::size_t length_of(std::size_t piece, std::size_t bytes) {
  return std::min(kPiece, bytes - piece * kPiece);
}

}  // namespace

StagedCopy::~StagedCopy() {
  for (auto& half : halves_) try {
      if (half) half->copied.synchronize();
    } catch (const std::exception&) {
      half.release();  // the device is lost and may still write there: leak the memory until the process ends
    }
}

void StagedCopy::reserve() {
  for (std::size_t i = 0; i < halves_.size() && !device_.is_cpu(); ++i) half(i);
}

StagedCopy::Half& StagedCopy::half(std::size_t piece) {
  auto& half = halves_[piece % halves_.size()];
  if (!half) half = std::make_unique<Half>(Half{PinnedBuffer(kPiece, device_), Event(device_)});
  return *half;
}

void StagedCopy::to_host(const at::Tensor& to, const at::Tensor& from) {
  QFT_ASSERT(to.is_cpu() && to.is_contiguous() && to.numel() == from.numel(), "{} elements to {}", from.numel(), to.numel());
  if (from.is_cpu()) {
    to.view(-1).copy_(from.reshape(-1));
    return;
  }
  const at::Tensor source = from.to(to.scalar_type()).contiguous();
  const std::size_t bytes = source.nbytes(), pieces = pieces_of(bytes);
  const auto* const begin = static_cast<const char*>(source.const_data_ptr());
  auto* const target = static_cast<char*>(to.data_ptr());
  for (std::size_t i = 0; i <= pieces; ++i) {
    if (i < pieces) {
      Half& next = half(i);
      copy_bytes(next.buffer.data(), begin + i * kPiece, length_of(i, bytes), device_);
      next.copied.record(Stream::current(device_));
    }
    if (i == 0) continue;
    const Half& last = half(i - 1);
    last.copied.synchronize();
    std::memcpy(target + (i - 1) * kPiece, last.buffer.data(), length_of(i - 1, bytes));
  }
}

at::Tensor StagedCopy::on_host(const at::Tensor& from, at::ScalarType dtype) {
  if (from.is_cpu()) return from.to(dtype).contiguous();
  const at::Tensor host = at::empty(from.sizes(), at::TensorOptions(dtype));
  to_host(host, from);
  return host;
}

void StagedCopy::to_device(const at::Tensor& to, const at::Tensor& from) {
  QFT_ASSERT(from.is_cpu() && from.is_contiguous() && to.is_contiguous() && to.nbytes() == from.nbytes(), "{} bytes to {}",
             from.nbytes(), to.nbytes());
  if (to.is_cpu()) {
    to.view(-1).copy_(from.view(-1));
    return;
  }
  const std::size_t bytes = from.nbytes();
  const auto* const begin = static_cast<const char*>(from.const_data_ptr());
  auto* const target = static_cast<char*>(to.data_ptr());
  for (std::size_t i = 0; i < pieces_of(bytes); ++i) {
    Half& next = half(i);
    next.copied.synchronize();
    std::memcpy(next.buffer.data(), begin + i * kPiece, length_of(i, bytes));
    copy_bytes(target + i * kPiece, next.buffer.data(), length_of(i, bytes), device_);
    next.copied.record(Stream::current(device_));
  }
}

}  // namespace qft::device
