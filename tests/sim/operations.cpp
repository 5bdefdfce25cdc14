// Operations with kernels for the device: memory, views, copies, and operations that the CPU lacks. All others go to the
// fallback.
#include "operations.h"

#include "guard.h"
#include "memory.h"
#include "raw_tensor.h"
#include "report.h"
#include "torch_kernels.h"
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/NativeFunctions.h>
#include <ATen/native/Resize.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

namespace qft::sim {
namespace {

constexpr c10::DispatchKeySet kKey(c10::DispatchKey::PrivateUse1);
using Dtype = std::optional<c10::ScalarType>;
using Layout = std::optional<c10::Layout>;
using Device = std::optional<c10::Device>;
using Pin = std::optional<bool>;
using Format = std::optional<c10::MemoryFormat>;

c10::DeviceGuard guard_for(Layout layout, Device device, Pin pin) {
  TORCH_CHECK(c10::layout_or_default(layout) == c10::kStrided && !c10::pinned_memory_or_default(pin),
              "sim: tensors of the device are strided, and not pinned");
  return c10::DeviceGuard(device && device->has_index() ? *device : current_device());
}

at::Tensor empty(c10::IntArrayRef size, Dtype dtype, Layout layout, Device device, Pin pin, Format format) {
  const auto guard = guard_for(layout, device, pin);
  return at::detail::empty_generic(size, device_allocator(), kKey, c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, Dtype dtype, Layout layout, Device device, Pin pin) {
  const auto guard = guard_for(layout, device, pin);
  return at::detail::empty_strided_generic(size, stride, device_allocator(), kKey, c10::dtype_or_default(dtype));
}

const at::Tensor& resize(const at::Tensor& self, c10::IntArrayRef size, Format format) {
  auto* const impl = self.unsafeGetTensorImpl();
  if (impl->sizes() == size) return self;
  impl->set_sizes_contiguous(size);
  const std::size_t bytes = (static_cast<std::size_t>(self.storage_offset() + self.numel())) * self.itemsize();
  if (self.numel() > 0 && bytes > self.storage().nbytes()) resize_storage(self.storage(), bytes);
  if (format) impl->empty_tensor_restride(*format);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, c10::Storage source, std::int64_t offset, c10::IntArrayRef size,
                        c10::IntArrayRef stride) {
  at::native::checkSetStorage(self, std::move(source), offset, size, stride);
  self.unsafeGetTensorImpl()->set_storage_offset(offset);
  if (stride.empty() && !size.empty()) {
    self.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  } else {
    self.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride);
  }
  return self;
}

at::Tensor& set_whole_storage(at::Tensor& self, c10::Storage source) {
  const auto n = static_cast<std::int64_t>(source.nbytes() / self.itemsize());
  return set_storage(self, std::move(source), 0, {n}, {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  if (self.is_same(source)) return self;
  return set_storage(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& to, bool non_blocking) {
  at::Tensor target = to;
  return copy(target, self, non_blocking);
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& to) {
  to.resize_(self.sizes());
  return copy_from(self, to, false);
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  device_allocator()->recordStream(self.storage().data_ptr(), stream);
}

}  // namespace

void register_operations() {
  static auto* const aten = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  aten->impl("empty.memory_format", &empty);
  aten->impl("empty_strided", &empty_strided);
  aten->impl("resize_", &resize);
  aten->impl("set_.source_Storage", &set_whole_storage);
  aten->impl("set_.source_Storage_storage_offset", &set_storage);
  aten->impl("set_.source_Tensor", &set_tensor);
  aten->impl("as_strided", &at::native::as_strided_tensorimpl);
  aten->impl("view", &at::native::view);
  aten->impl("_reshape_alias", &at::native::_reshape_alias);
  aten->impl("unfold", &at::native::unfold);
  aten->impl("copy_", &copy);
  aten->impl("_copy_from", &copy_from);
  aten->impl("_copy_from_and_resize", &copy_from_and_resize);
  aten->impl("_local_scalar_dense", &item);
  aten->impl("record_stream", &record_stream);
  register_flash_attention(*aten);
  register_efficient_attention(*aten);
  register_products(*aten);
  static auto* const rest = new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  rest->fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

}  // namespace qft::sim
