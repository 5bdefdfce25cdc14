// ATen operations on the device.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace qft::sim {

void register_operations();

/// Computes operations that are not views and have no kernel for the device: calls the CPU's kernel in queued work.
void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);

/// Copies between host and device in both directions, and on the device.
at::Tensor& copy(at::Tensor& to, const at::Tensor& from, bool non_blocking);
void copy_bytes(void* to, const void* from, std::size_t bytes, const c10::Stream& stream);
at::Scalar item(const at::Tensor& tensor);

/// Grows or shrinks a storage on the device; its content is copied in stream order.
void resize_storage(const c10::Storage& storage, std::size_t bytes);

/// Returns the outputs of an operation in our table, as tensors without memory; nullopt if it is not in the table.
std::optional<std::vector<at::Tensor>> known_shapes(const std::string& op, const torch::jit::Stack& arguments);

}  // namespace qft::sim
