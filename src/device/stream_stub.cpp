// CPU builds: work is done when a call returns.
#include "qft/core/error.h"
#include "qft/device/stream.h"

#include <chrono>

namespace qft::device {

namespace {

c10::Stream cpu_stream(c10::Device device) {
  if (!device.is_cpu()) fail_config("a stream on {}: this build has no CUDA (-DQFT_CUDA=ON)", device.str());
  return c10::Stream(c10::Stream::DEFAULT, device);
}

}  // namespace

struct Event::State {
  std::chrono::steady_clock::time_point time{};
};

Stream Stream::current(c10::Device device) {
  return Stream(cpu_stream(device));
}
Stream Stream::make(c10::Device device, bool) {
  return Stream(cpu_stream(device));
}
void Stream::wait(const Event&) const {}
bool Stream::idle() const {
  return true;
}
void Stream::synchronize() const {}
void* Stream::native() const {
  return nullptr;
}

Event::Event(c10::Device, bool) : state_(std::make_unique<State>()) {}
Event::~Event() = default;
Event::Event(Event&&) noexcept = default;
Event& Event::operator=(Event&&) noexcept = default;
void Event::record(const Stream&) {
  state_->time = std::chrono::steady_clock::now();
}
bool Event::query() const {
  return true;
}
void Event::synchronize() const {}
double Event::milliseconds_since(const Event& earlier) const {
  return std::chrono::duration<double, std::milli>(state_->time - earlier.state_->time).count();
}
void* Event::native() const {
  return nullptr;
}

StreamGuard::StreamGuard(const Stream& stream) : previous_(stream) {}
StreamGuard::~StreamGuard() = default;

}  // namespace qft::device
