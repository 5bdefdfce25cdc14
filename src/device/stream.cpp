#include "qft/device/stream.h"

#include "qft/core/activity.h"

#include <chrono>
#include <optional>

#include "wait_refusal.h"
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace qft::device {
namespace {

c10::impl::VirtualGuardImpl guard_of(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type());
}

}  // namespace

struct Event::State {
  std::optional<c10::Event> event;  ///< none on the CPU
  std::chrono::steady_clock::time_point time{};
};

Stream Stream::current(c10::Device device) {
  if (device.is_cpu()) return Stream(c10::Stream(c10::Stream::DEFAULT, device));
  return Stream(guard_of(device).getStream(device));
}

Stream Stream::make(c10::Device device, bool high_priority) {
  if (device.is_cpu()) return current(device);
  return Stream(guard_of(device).getStreamFromGlobalPool(device, high_priority));
}

void Stream::wait(const Event& event) const {
  if (event.state_->event) event.state_->event->block(stream_);
}

void Stream::wait(const Stream& other) const {
  Event queued(device());
  queued.record(other);
  wait(queued);
}

bool Stream::idle() const {
  return device().is_cpu() || stream_.query();
}

void Stream::synchronize() const {
  if (device().is_cpu()) return;
  check_wait_allowed("synchronize a stream");
  const activity::Waiting waiting(activity::Wait::device);
  stream_.synchronize();
}

void* Stream::native() const {
  return device().is_cpu() ? nullptr : stream_.native_handle();
}

Event::Event(c10::Device device, bool timing) : state_(std::make_unique<State>()) {
  if (!device.is_cpu())
    state_->event.emplace(device.type(), timing ? c10::EventFlag::BACKEND_DEFAULT : c10::EventFlag::PYTORCH_DEFAULT);
}
Event::~Event() = default;
Event::Event(Event&&) noexcept = default;
Event& Event::operator=(Event&&) noexcept = default;

void Event::record(const Stream& stream) {
  if (state_->event) {
    state_->event->record(stream.torch());
  } else {
    state_->time = std::chrono::steady_clock::now();
  }
}

bool Event::query() const {
  return !state_->event || state_->event->query();
}

void Event::synchronize() const {
  if (!state_->event || !state_->event->was_marked_for_recording()) return;
  check_wait_allowed("synchronize an event");
  const activity::Waiting waiting(activity::Wait::device);
  state_->event->synchronize();
}

double Event::milliseconds_since(const Event& earlier) const {
  if (state_->event) return earlier.state_->event->elapsedTime(*state_->event);
  return std::chrono::duration<double, std::milli>(state_->time - earlier.state_->time).count();
}

StreamGuard::StreamGuard(const Stream& stream) : previous_(Stream::current(stream.device())) {
  if (!stream.device().is_cpu()) guard_of(stream.device()).exchangeStream(stream.torch());
}
StreamGuard::~StreamGuard() {
  if (!previous_.device().is_cpu()) guard_of(previous_.device()).exchangeStream(previous_.torch());
}

}  // namespace qft::device
