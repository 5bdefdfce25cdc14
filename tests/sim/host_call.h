// Stores an operation's call for queued work, which executes it on the host.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "raw_tensor.h"
#include "sim.h"
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

namespace qft::sim {

using Tensors = std::vector<at::Tensor>;

/// Returns the value with `f` applied to each tensor in it, in a fixed order.
template <class F>
c10::IValue map_tensors(const c10::IValue& value, const F& f) {
  if (value.isTensor()) return f(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& t : value.toTensorVector()) list.push_back(f(t));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& t : value.toOptionalTensorList())
      list.push_back(t ? std::optional<at::Tensor>(f(*t)) : std::nullopt);
    return list;
  }
  return value;
}

/// Returns all tensors in the values.
Tensors flatten(const torch::jit::Stack& values);

/// An operation and its arguments: device tensors as raw tensors, host scalars by value.
class HostCall {
 public:
  /// Throws c10::Error if an argument is a host tensor but not a scalar: work on the device cannot read it.
  HostCall(const c10::OperatorHandle& op, const torch::jit::Stack& arguments);

  /// Returns the CPU kernel's results, on tensors that share storages as the device tensors do.
  torch::jit::Stack operator()() const;

  /// Its reads and writes, without new outputs.
  const std::vector<Access>& accesses() const { return accesses_; }

 private:
  c10::OperatorHandle op_;
  std::vector<c10::IValue> arguments_;  ///< without the device tensors
  std::vector<int> places_;             ///< for each tensor of the arguments its index in tensors_; -1: it is in arguments_
  std::vector<RawTensor> tensors_;
  std::vector<Access> accesses_;
};

}  // namespace qft::sim
