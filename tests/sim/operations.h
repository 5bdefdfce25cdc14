// ATen's operations on the device.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace qft::sim {

void register_operations();

/// What is no view and has no kernel of its own: computed by the CPU's kernel in queued work.
void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);

/// All ways between host and device, and on the device.
at::Tensor& copy(at::Tensor& to, const at::Tensor& from, bool non_blocking);
void copy_bytes(void* to, const void* from, std::size_t bytes, const c10::Stream& stream);
at::Scalar item(const at::Tensor& tensor);

/// Grows or shrinks a storage of the device; what it holds is copied in order.
void resize_storage(const c10::Storage& storage, std::size_t bytes);

/// Outputs, as tensors without memory, of an operation that is in our table; none: it is not.
std::optional<std::vector<at::Tensor>> known_shapes(const std::string& op, const torch::jit::Stack& arguments);

}  // namespace qft::sim
