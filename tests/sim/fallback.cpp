// Every operation that is not a view and has no kernel for the device: the fallback infers the output shapes, and queued work
// calls the CPU's kernel on the memory's other address.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "capture.h"
#include "guard.h"
#include "host_call.h"
#include "operation_log.h"
#include "operations.h"
#include "queues.h"
#include "raw_tensor.h"
#include <ATen/ATen.h>
#include <ATen/native/Resize.h>

namespace qft::sim {
namespace {

using c10::IValue;
using torch::jit::Stack;
/// Stand-ins for tensors: equal tensors get the same stand-in.
class Twins {
 public:
  template <class F>
  const at::Tensor& of(const at::Tensor& tensor, const F& make) {
    auto& twin = twins_[tensor.unsafeGetTensorImpl()];
    if (!twin.defined()) twin = make();
    return twin;
  }
  bool holds_storage_of(const at::Tensor& tensor) const {
    return std::any_of(twins_.begin(), twins_.end(),
                       [&](const auto& t) { return t.second.storage().is_alias_of(tensor.storage()); });
  }

 private:
  std::map<const c10::TensorImpl*, at::Tensor> twins_;
};

/// Copies the values into the outputs.
void store(const std::string& name, const Tensors& results, const std::vector<std::optional<RawTensor>>& outputs) {
  TORCH_CHECK(results.size() == outputs.size(), "sim: '", name, "' gave ", results.size(), " tensors, not ", outputs.size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    TORCH_CHECK(results[i].defined() == outputs[i].has_value(), "sim: '", name, "': output ", i, " is there on one device only");
    if (!outputs[i]) continue;
    const at::Tensor to = outputs[i]->cpu();
    TORCH_CHECK(to.sizes() == results[i].sizes() && to.scalar_type() == results[i].scalar_type(), "sim: '", name, "': output ", i,
                " was said to be ", to.sizes(), " of ", to.scalar_type(), ", and is ", results[i].sizes(), " of ",
                results[i].scalar_type());
    to.copy_(results[i]);
  }
}

/// One call of an operation on the device.
class Call {
 public:
  Call(const c10::OperatorHandle& op, Stack* stack)
      : op_(op),
        name_(c10::toString(op.operator_name())),
        arguments_(torch::jit::last(*stack, op.schema().arguments().size()).vec()) {
    torch::jit::drop(*stack, arguments_.size());
  }

  void run(Stack* stack) {
    refuse_random();
    log_operation(short_name(), flatten(arguments_));
    const c10::Stream stream = current_stream(device().index());
    const c10::DeviceGuard guard(device());
    if (returns_host_values()) return run_and_wait(stream, stack);
    Stack fresh = allocate_outputs();
    const auto call = std::make_shared<const HostCall>(op_, arguments_);
    std::vector<std::optional<RawTensor>> outputs;
    std::vector<Access> accesses = call->accesses();
    for (const at::Tensor& t : flatten(fresh)) {
      outputs.push_back(t.defined() ? std::optional<RawTensor>(t) : std::nullopt);
      if (outputs.back()) outputs.back()->add_accesses(true, accesses);
    }
    enqueue(stream, short_name(), std::move(accesses), [call, outputs, name = name_] {
      try {
        const Stack results = (*call)();
        if (!outputs.empty()) store(name, flatten(results), outputs);
      } catch (const c10::Error& e) {
        TORCH_CHECK(false, "sim: '", name, "', when its turn came: ", e.what_without_backtrace());
      }
    });
    push_results(std::move(fresh), stack);
  }

 private:
  std::string short_name() const { return name_.starts_with("aten::") ? name_.substr(6) : name_; }

  c10::Device device() const {
    const Tensors all = flatten(arguments_);
    const auto found = std::find_if(all.begin(), all.end(), on_sim);
    TORCH_CHECK(found != all.end(), "sim: '", name_, "' makes tensors of the device, and has no kernel for that");
    return found->device();
  }

  void refuse_random() const {
    const auto& arguments = op_.schema().arguments();
    const bool generator =
        std::any_of(arguments.begin(), arguments.end(), [](const c10::Argument& a) { return a.name() == "generator"; });
    TORCH_CHECK(!generator && !op_.hasTag(at::Tag::nondeterministic_seeded), "sim: '", name_,
                "' draws random numbers, which differ from device to device: draw them on the host");
  }

  bool returns_host_values() const {
    const auto& returns = op_.schema().returns();
    return std::any_of(returns.begin(), returns.end(), [](const c10::Argument& r) {
      return !r.type()->isSubtypeOf(*c10::TensorType::get()) && !r.type()->isSubtypeOf(*c10::ListType::ofTensors());
    });
  }

  void run_and_wait(const c10::Stream& stream, Stack* stack) {
    const auto call = std::make_shared<const HostCall>(op_, arguments_);
    const auto results = std::make_shared<Stack>();
    Lock lock = lock_machine();
    check_wait(short_name().c_str());
    const int s = stream_index(stream);
    const auto work = [call, results] {
      *results = (*call)();
      return Progress::done;
    };
    submit(lock, s, Work{short_name(), work, {}, false, true}, call->accesses());
    host_wait(lock, short_name().c_str(), {queues().last(s)}, Clock(queues().clock(s)));
    for (IValue& value : *results) stack->push_back(std::move(value));
  }

  /// Returns the outputs as tensors that have only shapes. They come from LibTorch's Meta kernel if there is one in C++, else
  /// from our table, else from the CPU's kernel with zeros (valid indices) or with ones (valid divisors). Grows given outputs.
  Stack infer(bool has_meta) {
    if (has_meta) return infer_by(c10::DispatchKey::Meta, c10::kMeta, 0);
    if (const auto known = known_shapes(name_, arguments_)) return {known->begin(), known->end()};
    TORCH_CHECK(!op_.hasTag(at::Tag::dynamic_output_shape), "sim: '", name_,
                "' gives an output whose shape depends on values, for which the host would have to wait");
    try {
      return infer_by(c10::DispatchKey::CPU, c10::kCPU, 0);
    } catch (const c10::Error&) {
      return infer_by(c10::DispatchKey::CPU, c10::kCPU, 1);
    }
  }

  Stack infer_by(c10::DispatchKey key, c10::Device device, int value) {
    Twins twins;
    Stack stack;
    for (const IValue& argument : arguments_) {
      stack.push_back(map_tensors(argument, [&](const at::Tensor& t) {
        if (!on_sim(t)) return t;
        return twins.of(t, [&] { return at::empty_strided(t.sizes(), t.strides(), t.options().device(device)).fill_(value); });
      }));
      if (argument.isDevice()) stack.back() = device;
    }
    const Stack given = stack;
    try {
      op_.redispatchBoxed(c10::DispatchKeySet(key), &stack);
    } catch (const c10::Error& e) {
      TORCH_CHECK(false, "sim: '", name_, "': ", e.what_without_backtrace());
    }
    resize_given(given);
    for (std::size_t i = 0; i < stack.size(); ++i)
      if (op_.schema().returns()[i].alias_info() == nullptr)
        for (const at::Tensor& t : flatten({stack[i]}))
          TORCH_CHECK(!t.defined() || !twins.holds_storage_of(t), "sim: '", name_,
                      "' returns a part of its arguments, and is not known as a view");
    return stack;
  }

  void resize_given(const Stack& meta) {
    const auto& declared = op_.schema().arguments();
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      if (!declared[i].is_out()) continue;
      const Tensors given = flatten({arguments_[i]}), wanted = flatten({meta[i]});
      for (std::size_t t = 0; t < given.size(); ++t)
        if (on_sim(given[t]) && given[t].sizes() != wanted[t].sizes()) at::native::resize_output(given[t], wanted[t].sizes());
    }
  }

  /// True if an output must be made or grown. Checking with a Meta kernel is free, and finds wrong sizes at the call.
  bool needs_shapes() const {
    const auto& returns = op_.schema().returns();
    if (std::any_of(returns.begin(), returns.end(), [](const c10::Argument& r) { return r.alias_info() == nullptr; }))
      return true;
    const auto& declared = op_.schema().arguments();
    for (std::size_t i = 0; i < arguments_.size(); ++i)
      if (declared[i].is_out())
        for (const at::Tensor& t : flatten({arguments_[i]}))
          if (t.numel() == 0) return true;
    return false;
  }

  /// Returns the outputs that are not arguments, uninitialised.
  Stack allocate_outputs() {
    const auto& returns = op_.schema().returns();
    for (const c10::Argument& r : returns)
      TORCH_CHECK(r.alias_info() == nullptr || r.alias_info()->isWrite(), "sim: '", name_,
                  "' is a view that has no kernel of the device's own");
    const bool has_meta = op_.hasKernelForDispatchKey(c10::DispatchKey::Meta);
    const Stack shapes = has_meta || needs_shapes() ? infer(has_meta) : Stack();
    Stack fresh;
    for (std::size_t i = 0; i < returns.size(); ++i)
      if (returns[i].alias_info() == nullptr)
        fresh.push_back(map_tensors(shapes[i], [&](const at::Tensor& t) {
          return t.defined() ? at::empty_strided(t.sizes(), t.strides(), t.options().device(device())) : t;
        }));
    return fresh;
  }

  void push_results(Stack fresh, Stack* stack) const {
    auto next = fresh.begin();
    for (const c10::Argument& result : op_.schema().returns()) {
      if (result.alias_info() == nullptr) {
        stack->push_back(std::move(*next++));
        continue;
      }
      const auto& declared = op_.schema().arguments();
      const auto given = std::find_if(declared.begin(), declared.end(), [&](const c10::Argument& a) {
        return a.alias_info() != nullptr && a.alias_info()->beforeSets() == result.alias_info()->beforeSets();
      });
      TORCH_CHECK(given != declared.end(), "sim: '", name_, "' returns an alias that is not of an argument");
      stack->push_back(arguments_[static_cast<std::size_t>(given - declared.begin())]);
    }
  }

  c10::OperatorHandle op_;
  std::string name_;
  Stack arguments_;
};

}  // namespace

void fallback(const c10::OperatorHandle& op, Stack* stack) {
  Call(op, stack).run(stack);
}

}  // namespace qft::sim
