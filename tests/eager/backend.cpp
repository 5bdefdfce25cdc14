// The device's table, and its implementation of LibTorch's guard and hook interfaces.
#include "qft/device/backend.h"

#include <chrono>
#include <cstring>
#include <unistd.h>
#include <utility>

#include "device.h"
#include <ATen/Context.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace qft::eager {
namespace {

using Time = std::chrono::steady_clock::time_point;
constexpr c10::StreamId kStreams = 32;

c10::Device the_device() {
  return {kType, 0};
}

thread_local c10::StreamId stream_now = 0;

/// Streams are only names, because no work is ever pending. Events hold the time at which they were recorded.
struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device) const override { return the_device(); }
  c10::Device getDevice() const override { return the_device(); }
  void setDevice(c10::Device device) const override { TORCH_CHECK(device.index() <= 0, "eager: no device ", device.index()); }
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  c10::Stream getStream(c10::Device) const override { return c10::Stream(c10::Stream::UNSAFE, the_device(), stream_now); }
  c10::Stream getDefaultStream(c10::Device) const override { return c10::Stream(c10::Stream::DEFAULT, the_device()); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override {
    thread_local c10::StreamId next = 0;
    return c10::Stream(c10::Stream::UNSAFE, the_device(), 1 + next++ % kStreams);
  }
  c10::Stream getNewStream(c10::Device device, int) const override { return getStreamFromGlobalPool(device, false); }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return c10::Stream(c10::Stream::UNSAFE, the_device(), std::exchange(stream_now, stream.id()));
  }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeDevice(c10::DeviceIndex) const override {}
  void record(void** event, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {
    delete static_cast<Time*>(std::exchange(*event, new Time(std::chrono::steady_clock::now())));
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override { delete static_cast<Time*>(event); }
  double elapsedTime(void* first, void* second, c10::DeviceIndex) const override {
    return std::chrono::duration<double, std::milli>(*static_cast<Time*>(second) - *static_cast<Time*>(first)).count();
  }
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
};

class EagerBackend final : public device::Backend {
 public:
  std::string_view name() const override { return "eager"; }
  c10::DeviceType type() const override { return kType; }
  std::string library_version() const override { return "work that is done at once"; }
  int count(std::string&) const override { return 1; }
  device::DeviceFacts facts(int) const override {
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    device::DeviceFacts facts;
    facts.name = "eager device";
    facts.uuid = c10::str("eager-", host, "-", getpid());  // each process has its own
    facts.architecture = "none: PyTorch's kernels for the CPU";
    facts.memory = static_cast<std::int64_t>(kMemory);
    return facts;
  }
  void* allocate_pinned(std::size_t bytes) const override { return eager::allocate_pinned(bytes); }
  void free_pinned(void* data) const override { eager::free_pinned(data); }
  void copy_bytes(void* to, const void* from, std::size_t bytes, const c10::Stream&) const override {
    std::memcpy(to, from, bytes);
  }
  void refuse_waits(bool) const override {}
  bool is_refusal(std::string_view) const override { return false; }
  std::unique_ptr<device::GraphRecorder> recorder(int) const override { return nullptr; }
  const void* part(std::string_view) const override { return nullptr; }
};

}  // namespace

void register_device() {
  c10::register_privateuse1_backend("eager");
  c10::SetAllocator(kType, device_allocator());
  c10::impl::registerDeviceGuard(kType, new Guard);
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  register_operations();
  at::globalContext().lazyInitDevice(kType);
}

}  // namespace qft::eager

extern "C" __attribute__((visibility("default"))) qft::device::BackendAbi qft_device_backend_abi = QFT_BACKEND_ABI;

extern "C" __attribute__((visibility("default"))) const qft::device::Backend* qft_device_backend() {
  static const qft::eager::EagerBackend backend;
  qft::eager::register_device();
  return &backend;
}
