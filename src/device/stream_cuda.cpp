// CUDA streams and events; the CPU's are no-ops here too.
#include "qft/core/error.h"
#include "qft/device/stream.h"

#include <chrono>
#include <optional>

#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

namespace qft::device {

namespace {

c10::cuda::CUDAStream cuda_stream(const c10::Stream& stream) {
  return c10::cuda::CUDAStream(stream);
}

void set_current(const c10::Stream& stream) {
  if (stream.device().is_cuda()) c10::cuda::setCurrentCUDAStream(cuda_stream(stream));
}

}  // namespace

struct Event::State {
  std::optional<at::cuda::CUDAEvent> event;  ///< none on the CPU
  std::chrono::steady_clock::time_point time{};
};

Stream Stream::current(c10::Device device) {
  if (device.is_cpu()) return Stream(c10::Stream(c10::Stream::DEFAULT, device));
  return Stream(c10::cuda::getCurrentCUDAStream(device.index()).unwrap());
}

Stream Stream::make(c10::Device device, bool high_priority) {
  if (device.is_cpu()) return current(device);
  return Stream(c10::cuda::getStreamFromPool(high_priority, device.index()).unwrap());
}

void Stream::wait(const Event& event) const {
  if (device().is_cuda() && event.state_->event) event.state_->event->block(cuda_stream(stream_));
}

bool Stream::idle() const {
  return device().is_cpu() || cuda_stream(stream_).query();
}

void Stream::synchronize() const {
  if (device().is_cuda()) cuda_stream(stream_).synchronize();
}

void* Stream::native() const {
  return device().is_cuda() ? cuda_stream(stream_).stream() : nullptr;
}

Event::Event(c10::Device device, bool timing) : state_(std::make_unique<State>()) {
  if (device.is_cuda()) state_->event.emplace(timing ? cudaEventDefault : cudaEventDisableTiming);
}
Event::~Event() = default;
Event::Event(Event&&) noexcept = default;
Event& Event::operator=(Event&&) noexcept = default;

void Event::record(const Stream& stream) {
  if (state_->event) {
    state_->event->record(cuda_stream(stream.torch()));
  } else {
    state_->time = std::chrono::steady_clock::now();
  }
}

bool Event::query() const {
  return !state_->event || state_->event->query();
}

void Event::synchronize() const {
  if (!state_->event || !state_->event->isCreated()) return;
  if (c10::cuda::warning_state().get_sync_debug_mode() != c10::cuda::SyncDebugMode::L_DISABLED)
    c10::cuda::warn_or_error_on_sync();  // as LibTorch's own waits do (wait_check.h)
  state_->event->synchronize();
}

double Event::milliseconds_since(const Event& earlier) const {
  if (state_->event) return earlier.state_->event->elapsed_time(*state_->event);
  return std::chrono::duration<double, std::milli>(state_->time - earlier.state_->time).count();
}

void* Event::native() const {
  return state_->event && state_->event->isCreated() ? state_->event->event() : nullptr;
}

StreamGuard::StreamGuard(const Stream& stream) : previous_(Stream::current(stream.device())) {
  set_current(stream.torch());
}
StreamGuard::~StreamGuard() {
  set_current(previous_.torch());
}

}  // namespace qft::device
