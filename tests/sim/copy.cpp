// Copies behave as CUDA's: a copy from pageable memory takes the values immediately, a copy to pageable memory waits, and a copy
// from pinned memory uses the values present when its turn comes.
#include <atomic>
#include <cstring>
#include <memory>
#include <utility>

#include "capture.h"
#include "guard.h"
#include "memory.h"
#include "operations.h"
#include "pageable.h"
#include "pinned.h"
#include "queues.h"
#include "raw_tensor.h"
#include "report.h"
#include <ATen/ATen.h>

namespace qft::sim {
namespace {

Progress done() {
  return Progress::done;
}

/// Queues the copy, then waits if the host must; `pinned`: LibTorch's pinned memory that must not be reused before.
void submit_copy(const char* name, const c10::Stream& stream, const std::vector<Access>& accesses, std::function<void()> work,
                 bool wait, const void* pinned = nullptr) {
  Lock lock = lock_machine();
  if (wait) check_wait(name);
  const int s = stream_index(stream);
  auto run = [work = std::move(work)] {
    work();
    return done();
  };
  submit(lock, s, Work{name, std::move(run), {}, false, true}, accesses);
  if (pinned != nullptr && capture_of(s) == nullptr) pinned_memory().record(pinned, queues().last(s));
  if (wait) host_wait(lock, name, {queues().last(s)}, Clock(queues().clock(s)));
}

std::atomic<std::int64_t> pageable = 0;  // bytes

void count_pageable(std::size_t bytes) {
  pageable += static_cast<std::int64_t>(bytes);
}

bool is_pinned(const at::Tensor& t) {
  return t.numel() > 0 && is_pinned_memory(t.const_data_ptr(), t.nbytes());
}

void check_not_captured(const c10::Stream& stream, const char* what) {
  const Lock lock = lock_machine();
  if (capture_of(stream_index(stream)) != nullptr) fail_use(c10::str("sim: ", what, " in a capture: make it pinned"));
}

void to_device(const at::Tensor& to, const at::Tensor& from, bool non_blocking, const c10::Stream& stream) {
  constexpr const char* kName = "copy to the device";
  const bool late = is_pinned(from) && from.is_contiguous() && from.sizes() == to.sizes();
  std::vector<Access> accesses;
  const RawTensor target(to);
  target.add_accesses(true, accesses);
  if (late) {
    const RawTensor source(from);
    source.add_accesses(false, accesses);
    return submit_copy(
        kName, stream, accesses, [target, source] { target.cpu().copy_(source.cpu()); }, !non_blocking, from.const_data_ptr());
  }
  check_not_captured(stream, "a copy from pageable memory");
  count_pageable(from.nbytes());
  const at::Tensor staged = from.clone(at::MemoryFormat::Contiguous);
  submit_copy(
      kName, stream, accesses, [target, staged, sizes = to.sizes().vec()] { target.cpu().copy_(staged.expand(sizes)); },
      !non_blocking);
}

void to_host(const at::Tensor& to, const at::Tensor& from, bool non_blocking, const c10::Stream& stream) {
  const bool late = is_pinned(to) && to.is_contiguous();
  std::vector<Access> accesses;
  const RawTensor target(to), source(from);
  source.add_accesses(false, accesses);
  if (!late) count_pageable(to.nbytes());
  if (late) target.add_accesses(true, accesses);
  submit_copy(
      late ? "copy to pinned memory" : "copy to pageable memory", stream, accesses,
      [target, source] { target.cpu().copy_(source.cpu()); }, !(late && non_blocking), late ? to.const_data_ptr() : nullptr);
}

}  // namespace

std::int64_t pageable_bytes() {
  return pageable;
}

at::Tensor& copy(at::Tensor& to, const at::Tensor& source, bool non_blocking) {
  TORCH_CHECK(to.defined() && source.defined(), "sim: a copy of an undefined tensor");
  if (to.is_same(source)) return to;
  const at::Tensor from = source.expand_as(to);
  if (to.numel() == 0) return to;
  const c10::Stream stream = current_stream((to.is_cpu() ? from : to).device().index());
  if (from.is_cpu()) {
    to_device(to, source, non_blocking, stream);
  } else if (to.is_cpu()) {
    to_host(to, from, non_blocking, stream);
  } else {
    TORCH_CHECK(on_sim(to) && on_sim(from), "sim: a copy from ", from.device(), " to ", to.device());
    const RawTensor target(to), values(from);
    std::vector<Access> accesses;
    values.add_accesses(false, accesses);
    target.add_accesses(true, accesses);
    submit_copy("copy_", stream, accesses, [target, values] { target.cpu().copy_(values.cpu()); }, false);
  }
  return to;
}

void copy_bytes(void* to, const void* from, std::size_t bytes, const c10::Stream& stream) {
  if (bytes == 0) return;
  const bool to_pageable = memory_of(to) == nullptr && !is_pinned_memory(to, bytes);
  const bool from_pageable = memory_of(from) == nullptr && !is_pinned_memory(from, bytes);
  std::vector<Access> accesses;
  if (!from_pageable) accesses.push_back({from, bytes, false});
  if (!to_pageable) accesses.push_back({to, bytes, true});
  void* const target = writable(to);
  const void* source = writable(from);
  std::shared_ptr<std::byte[]> staged;
  if (from_pageable || to_pageable) count_pageable(bytes);
  if (from_pageable) {
    check_not_captured(stream, "a copy from pageable memory");
    staged.reset(new std::byte[bytes]);
    std::memcpy(staged.get(), from, bytes);
    source = staged.get();
  }
  submit_copy(
      "copy_bytes", stream, accesses, [target, source, bytes, staged] { std::memcpy(target, source, bytes); }, to_pageable);
}

at::Scalar item(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.numel() == 1, "sim: item() of a tensor of ", tensor.numel(), " elements");
  const RawTensor source(tensor);
  std::vector<Access> accesses;
  source.add_accesses(false, accesses);
  const auto value = std::make_shared<at::Scalar>();
  submit_copy(
      "item()", current_stream(tensor.device().index()), accesses, [source, value] { *value = source.cpu().item(); }, true);
  return *value;
}

void resize_storage(const c10::Storage& storage, std::size_t bytes) {
  auto* const impl = storage.unsafeGetStorageImpl();
  const c10::Device device = impl->device();
  const std::size_t kept = std::min(bytes, impl->nbytes());
  c10::DataPtr fresh;
  {
    const c10::DeviceGuard guard(device);
    fresh = device_allocator()->allocate(bytes);
  }
  if (kept > 0) copy_bytes(fresh.get(), impl->mutable_data_ptr().get(), kept, current_stream(device.index()));
  impl->set_data_ptr_noswap(std::move(fresh));
  impl->set_nbytes(bytes);
}

}  // namespace qft::sim
