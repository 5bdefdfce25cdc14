// Memory, views and copies; everything else goes to LibTorch's fallback, which copies to the CPU and back.
#include "device.h"
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/NativeFunctions.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <torch/library.h>

namespace qft::eager {
namespace {

constexpr c10::DispatchKeySet kKey(c10::DispatchKey::PrivateUse1);
using Dtype = std::optional<c10::ScalarType>;
using Layout = std::optional<c10::Layout>;
using Device = std::optional<c10::Device>;
using Pin = std::optional<bool>;
using Format = std::optional<c10::MemoryFormat>;

at::Tensor empty(c10::IntArrayRef size, Dtype dtype, Layout, Device, Pin, Format format) {
  return at::detail::empty_generic(size, device_allocator(), kKey, c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, Dtype dtype, Layout, Device, Pin) {
  return at::detail::empty_strided_generic(size, stride, device_allocator(), kKey, c10::dtype_or_default(dtype));
}

const at::Tensor& resize(const at::Tensor& self, c10::IntArrayRef size, Format format) {
  auto* const impl = self.unsafeGetTensorImpl();
  if (impl->sizes() == size) return self;
  impl->set_sizes_contiguous(size);
  const std::size_t bytes = static_cast<std::size_t>(self.storage_offset() + self.numel()) * self.itemsize();
  if (bytes > self.storage().nbytes()) {
    const c10::Storage& storage = self.storage();
    c10::DataPtr fresh = device_allocator()->allocate(bytes);
    if (storage.nbytes() > 0) device_allocator()->copy_data(fresh.get(), storage.data(), storage.nbytes());
    storage.set_data_ptr_noswap(std::move(fresh));
    storage.set_nbytes(bytes);
  }
  if (format) impl->empty_tensor_restride(*format);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, c10::Storage source, std::int64_t offset, c10::IntArrayRef size,
                        c10::IntArrayRef stride) {
  at::native::checkSetStorage(self, std::move(source), offset, size, stride);
  self.unsafeGetTensorImpl()->set_storage_offset(offset);
  self.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride);
  return self;
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return set_storage(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

/// Returns the same elements as a CPU tensor.
at::Tensor on_cpu(const at::Tensor& t) {
  if (t.is_cpu()) return t;
  auto* const storage = t.storage().unsafeGetStorageImpl();
  const c10::Storage host(c10::Storage::use_byte_size_t(), storage->nbytes(),
                          c10::DataPtr(storage->mutable_data_ptr().get(), c10::Device(c10::kCPU)));
  auto made = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(host), c10::DispatchKeySet(c10::DispatchKey::CPU), t.dtype());
  made.unsafeGetTensorImpl()->set_storage_offset(t.storage_offset());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(t.sizes(), t.strides());
  return made;
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  on_cpu(to).copy_(on_cpu(from));
  return to;
}

at::Tensor& copy(at::Tensor& to, const at::Tensor& from, bool) {
  on_cpu(to).copy_(on_cpu(from));
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Scalar item(const at::Tensor& tensor) {
  return on_cpu(tensor).item();
}

void record_stream(at::Tensor&, c10::Stream) {}

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::native::cpu_fallback(op, stack);
}

}  // namespace

void register_operations() {
  static torch::Library aten(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  aten.impl("empty.memory_format", &empty);
  aten.impl("empty_strided", &empty_strided);
  aten.impl("resize_", &resize);
  aten.impl("set_.source_Storage_storage_offset", &set_storage);
  aten.impl("set_.source_Tensor", &set_tensor);
  aten.impl("as_strided", &at::native::as_strided_tensorimpl);
  aten.impl("view", &at::native::view);
  aten.impl("_reshape_alias", &at::native::_reshape_alias);
  aten.impl("unfold", &at::native::unfold);
  aten.impl("copy_", &copy);
  aten.impl("_copy_from", &copy_from);
  aten.impl("_copy_from_and_resize", &copy_from_and_resize);
  aten.impl("_local_scalar_dense", &item);
  aten.impl("record_stream", &record_stream);
  static torch::Library rest(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  rest.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

}  // namespace qft::eager
