#include "host_call.h"

#include <map>
#include <utility>

#include <ATen/ATen.h>

namespace qft::sim {

using c10::IValue;
using torch::jit::Stack;

namespace {

/// Copies a host scalar among the arguments by value; work on the device cannot read other host tensors.
at::Tensor host_scalar(const at::Tensor& tensor, const std::string& op) {
  TORCH_CHECK(tensor.is_cpu() && tensor.dim() == 0, "sim: '", op, "' of tensors of the device and one of ", tensor.device(),
              " with sizes ", tensor.sizes());
  at::Tensor copy = tensor.clone();
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) copy.unsafeGetTensorImpl()->set_wrapped_number(true);
  return copy;
}

}  // namespace

Tensors flatten(const Stack& values) {
  Tensors all;
  for (const IValue& value : values)
    map_tensors(value, [&](const at::Tensor& t) {
      all.push_back(t);
      return t;
    });
  return all;
}

HostCall::HostCall(const c10::OperatorHandle& op, const Stack& arguments) : op_(op) {
  const std::string name = c10::toString(op.operator_name());
  const auto& declared = op.schema().arguments();
  std::map<const c10::TensorImpl*, int> known;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const bool write = declared[i].alias_info() != nullptr && declared[i].alias_info()->isWrite();
    arguments_.push_back(map_tensors(arguments[i], [&](const at::Tensor& t) {
      if (!on_sim(t)) {
        places_.push_back(-1);
        return t.defined() ? host_scalar(t, name) : t;
      }
      const auto [place, fresh] = known.try_emplace(t.unsafeGetTensorImpl(), static_cast<int>(tensors_.size()));
      if (fresh) tensors_.emplace_back(t);
      places_.push_back(place->second);
      tensors_[static_cast<std::size_t>(place->second)].add_accesses(write, accesses_);
      return at::Tensor();
    }));
    if (arguments[i].isDevice()) arguments_.back() = c10::Device(c10::kCPU);
  }
}

Stack HostCall::operator()() const {
  std::map<const void*, c10::Storage> storages;
  Tensors tensors;
  for (const RawTensor& raw : tensors_) {
    auto [storage, fresh] = storages.try_emplace(raw.storage_data());
    if (fresh) storage->second = raw.storage();
    tensors.push_back(raw.cpu(storage->second));
  }
  Stack stack;
  auto place = places_.begin();
  for (const IValue& argument : arguments_)
    stack.push_back(map_tensors(argument, [&](const at::Tensor& t) {
      const int p = *place++;
      return p < 0 ? t : tensors[static_cast<std::size_t>(p)];
    }));
  op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  return stack;
}

}  // namespace qft::sim
