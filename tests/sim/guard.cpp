#include "guard.h"

#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "capture.h"
#include "memory.h"
#include "operations.h"
#include "pinned.h"
#include "report.h"
#include <ATen/Context.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

namespace qft::sim {
namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;
constexpr int kPollsPerWork = 3;  // "not done" answers until one more piece of work is done

thread_local c10::DeviceIndex device_now = 0;
thread_local std::map<c10::DeviceIndex, c10::StreamId> streams_now;  // NOLINT: small, and used until a thread ends

c10::Device device_of(c10::Device device) {
  return {kType, device.has_index() ? device.index() : device_now};
}

using Time = std::chrono::steady_clock::time_point;

struct EventState {
  Mark mark;
  Clock clock;
  std::uint64_t capture = 0;  ///< number of the capture it was recorded in; 0: none
  std::shared_ptr<Time> time;
  int polls = 0;
};

EventState& state(void* event) {
  return *static_cast<EventState*>(event);
}

bool query(Lock& lock, Mark mark, const Clock& clock, int& polls) {
  if (!queues().done(mark)) {
    if (++polls % kPollsPerWork == 0) queues().run_one(lock, mark);
    return false;
  }
  join(queues().host(), clock);
  queues().rethrow();
  return true;
}

void record_event(Lock& lock, EventState& event, int stream, bool timed) {
  if (const Capture* capture = capture_for(stream, "the record of an event")) {
    event.capture = capture->number;
    event.clock = capture->lanes.at(stream).clock;
    return;
  }
  if (timed) {
    event.time = std::make_shared<Time>();
    const auto note = [time = event.time] {
      *time = std::chrono::steady_clock::now();
      return Progress::done;
    };
    submit(lock, stream, Work{"the time of an event", note, {}, false, false}, {});
  }
  event.capture = 0;
  event.mark = queues().last(stream);
  event.clock = queues().clock(stream);
}

void wait_in_capture(const EventState& event, int stream) {
  Capture* const capture = capture_numbered(event.capture);
  if (capture == nullptr)
    fail_use(c10::str("sim: ", stream_name(stream), " waits for an event that was recorded in a capture which has ended"));
  if (capture != capture_of_this_thread())
    fail_use(c10::str("sim: ", stream_name(stream), " waits for an event of another thread's capture"));
  join(capture->lanes[stream].clock, event.clock);
}

void wait_event(const EventState& event, int stream) {
  throw_reported();
  if (event.capture != 0) return wait_in_capture(event, stream);
  if (capture_for(stream, "the wait for an event") != nullptr)
    fail_use(c10::str("sim: ", stream_name(stream),
                      ", which is being captured, waits for an event that was recorded outside of the capture"));
  join(queues().clock(stream), event.clock);
  if (event.mark.stream == stream || queues().done(event.mark)) return;
  queues().push(stream, Work{"the wait for an event", nullptr, {event.mark}, false, false});
}

/// Round robin, like LibTorch's stream pools for CUDA.
c10::Stream pool_stream(c10::DeviceIndex device, bool high_priority) {
  static std::array<std::array<int, 2>, 16> next{};
  const Lock lock = lock_machine();
  int& n = next[static_cast<std::size_t>(device)][high_priority ? 1 : 0];
  const int id = 1 + (high_priority ? kPoolStreams : 0) + n++ % kPoolStreams;
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, device), id);
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    return {kType, std::exchange(device_now, device_of(device).index())};
  }
  c10::Device getDevice() const override { return current_device(); }
  void setDevice(c10::Device device) const override {
    memory(device_of(device).index());  // throws if there is no such device
    device_now = device_of(device).index();
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override { device_now = device_of(device).index(); }
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(device_count()); }

  c10::Stream getStream(c10::Device device) const override { return current_stream(device_of(device).index()); }
  c10::Stream getDefaultStream(c10::Device device) const override { return c10::Stream(c10::Stream::DEFAULT, device_of(device)); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high) const override {
    return pool_stream(device_of(device).index(), high);
  }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    return pool_stream(device_of(device).index(), priority < 0);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = current_stream(stream.device_index());
    streams_now[stream.device_index()] = stream.id();
    return before;
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return reinterpret_cast<void*>(static_cast<std::uintptr_t>(stream_index(stream)) + 1);  // NOLINT: a name, never followed
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag flag) const override {
    throw_reported();
    Lock lock = lock_machine();
    auto fresh = std::make_unique<EventState>();
    record_event(lock, *fresh, stream_index(stream), flag == c10::EventFlag::BACKEND_DEFAULT);
    delete static_cast<EventState*>(std::exchange(*event, fresh.release()));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    const Lock lock = lock_machine();
    wait_event(state(event), stream_index(stream));
  }
  bool queryEvent(void* event) const override {
    if (event == nullptr) return true;
    Lock lock = lock_machine();
    EventState& e = state(event);
    if (e.capture != 0) fail_use("sim: an event that was recorded in a capture is asked whether it has happened");
    return query(lock, e.mark, e.clock, e.polls);
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override { delete static_cast<EventState*>(event); }
  void synchronizeEvent(void* event) const override {
    if (event == nullptr) return;
    Lock lock = lock_machine();
    const EventState& e = state(event);
    if (e.capture != 0) fail_use("sim: the host waits for an event that was recorded in a capture");
    host_wait(lock, "synchronize() of an event", {e.mark}, Clock(e.clock));
  }
  double elapsedTime(void* first, void* second, c10::DeviceIndex) const override {
    const Lock lock = lock_machine();
    TORCH_CHECK(first != nullptr && second != nullptr && state(first).time && state(second).time,
                "sim: time between events of which one was not recorded, or has no timing");
    TORCH_CHECK(queues().done(state(first).mark) && queues().done(state(second).mark),
                "sim: time between events that have not happened");
    return std::chrono::duration<double, std::milli>(*state(second).time - *state(first).time).count();
  }

  bool queryStream(const c10::Stream& stream) const override {
    static std::map<int, int> polls;
    Lock lock = lock_machine();
    const int s = stream_index(stream);
    if (capture_of(s) != nullptr)
      fail_use(c10::str("sim: ", stream_name(s), ", which is being captured, is asked whether it is idle"));
    return query(lock, queues().last(s), Clock(queues().clock(s)), polls[s]);
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    Lock lock = lock_machine();
    const int s = stream_index(stream);
    if (capture_of(s) != nullptr) fail_use(c10::str("sim: the host waits for ", stream_name(s), ", which is being captured"));
    host_wait(lock, "synchronize() of a stream", {queues().last(s)}, Clock(queues().clock(s)));
  }
  void synchronizeDevice(c10::DeviceIndex device) const override {
    Lock lock = lock_machine();
    const int first = (device < 0 ? device_now : device) * kStreamsPerDevice;
    std::vector<Mark> marks;
    Clock clock;
    for (int s = first; s < first + kStreamsPerDevice; ++s) {
      marks.push_back(queues().last(s));
      join(clock, queues().clock(s));
    }
    host_wait(lock, "synchronize() of the device", marks, clock);
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    device_allocator()->recordStream(data, stream);
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return device_count() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(device_count()); }
  void setCurrentDevice(c10::DeviceIndex device) const override { device_now = device; }
  c10::DeviceIndex getCurrentDevice() const override { return device_now; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override { return std::exchange(device_now, device); }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return device < 0 ? device_now : exchangeDevice(device);
  }
  bool isPinnedPtr(const void* data) const override {
    const Lock lock = lock_machine();
    return pinned_memory().contains(data, 1);
  }
  c10::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  c10::Device getDeviceFromPtr(void* data) const override {
    const Lock lock = lock_machine();
    for (int d = 0; d < device_count(); ++d)
      if (memory_of(data) == &memory(static_cast<c10::DeviceIndex>(d))) return {kType, static_cast<c10::DeviceIndex>(d)};
    TORCH_CHECK(false, "sim: ", data, " is not an address of device memory");
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t bytes) const override { resize_storage(storage, bytes); }
};

}  // namespace

c10::Device current_device() {
  return {kType, device_now};
}

c10::Stream current_stream(c10::DeviceIndex device) {
  const auto known = streams_now.find(device);
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, device), known == streams_now.end() ? 0 : known->second);
}

c10::Stream stream_of(const void* native) {
  const auto index = static_cast<int>(reinterpret_cast<std::uintptr_t>(native)) - 1;
  TORCH_CHECK(index >= 0 && index < device_count() * kStreamsPerDevice, "sim: ", native, " is not a stream");
  const c10::Device device(kType, static_cast<c10::DeviceIndex>(index / kStreamsPerDevice));
  return c10::Stream(c10::Stream::UNSAFE, device, index % kStreamsPerDevice);
}

void register_device() {
  [[maybe_unused]] static const bool once = [] {
    queues();  // reads its setting here, so that a wrong one throws here
    memory(0);
    c10::register_privateuse1_backend("sim");
    c10::SetAllocator(kType, device_allocator());
    c10::impl::registerDeviceGuard(kType, new Guard);
    at::RegisterPrivateUse1HooksInterface(new Hooks);
    register_operations();
    at::globalContext().lazyInitDevice(kType);
    watch_touches();
    watch_operations();
    watch_exit();
    return true;
  }();
}

}  // namespace qft::sim
