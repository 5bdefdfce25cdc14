// The simulated device's back end for qft, including graphs.
#include "qft/device/backend.h"

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <unistd.h>
#include <utility>

#include "capture.h"
#include "collectives.h"
#include "guard.h"
#include "memory.h"
#include "operations.h"
#include "pinned.h"
#include "queues.h"
#include "report.h"
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

namespace qft::sim {

namespace {

class SimGraph final : public device::Graph {
 public:
  explicit SimGraph(std::vector<Recorded> work) : work_(std::move(work)) {}
  void replay() override {
    const c10::Stream stream = current_stream(current_device().index());
    Lock lock = lock_machine();
    for (const Recorded& r : work_) submit_again(lock, stream_index(stream), r);
  }

 private:
  std::vector<Recorded> work_;
};

/// Makes `stream` the current, captured stream of this thread during its lifetime.
class CaptureScope {
 public:
  CaptureScope(const c10::Stream& stream, std::uint64_t pool) {
    static std::uint64_t number = 0;
    const Lock lock = lock_machine();
    const int s = stream_index(stream);
    TORCH_CHECK(capture_of(s) == nullptr && capture_of_this_thread() == nullptr, "sim: a capture in a capture");
    capture.number = ++number;
    capture.thread = std::this_thread::get_id();
    capture.origin = s;
    capture.pool = pool;
    capture.lanes[s];
    captures().push_back(&capture);
    before = guard().exchangeStream(stream);
  }
  ~CaptureScope() {
    const Lock lock = lock_machine();
    std::erase(captures(), &capture);
    guard().exchangeStream(before);
  }
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;

  std::vector<Recorded> take() {
    const Lock lock = lock_machine();
    throw_reported();
    const Clock& end = capture.lanes.at(capture.origin).clock;
    for (const auto& [stream, lane] : capture.lanes)
      if (!covers(end, stream, lane.pushed))
        fail_use(c10::str("sim: the capture of ", stream_name(capture.origin), " ends without waiting for ", stream_name(stream),
                          ", which is part of it"));
    return std::move(capture.recorded);
  }

 private:
  static const c10::impl::DeviceGuardImplInterface& guard() {
    return *c10::impl::getDeviceGuardImpl(c10::DeviceType::PrivateUse1);
  }

  Capture capture;
  c10::Stream before{c10::Stream::DEFAULT, current_device()};
};

class Recorder final : public device::GraphRecorder {
 public:
  explicit Recorder(int index) : memory_(&memory(static_cast<c10::DeviceIndex>(index))) {
    static std::uint64_t pools = 0;
    const Lock lock = lock_machine();
    pool_ = ++pools;
  }
  ~Recorder() override {
    const Lock lock = lock_machine();
    memory_->release_pool(pool_);
  }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  std::unique_ptr<device::Graph> capture(const c10::Stream& stream, const std::function<void()>& work) override {
    TORCH_CHECK(stream.id() != 0, "sim: the default stream cannot be captured: give a stream of the pool");
    CaptureScope scope(stream, pool_);
    work();
    return std::make_unique<SimGraph>(scope.take());
  }

 private:
  DeviceMemory* memory_;
  std::uint64_t pool_ = 0;
};

class SimBackend final : public device::Backend {
 public:
  std::string_view name() const override { return "sim"; }
  c10::DeviceType type() const override { return c10::DeviceType::PrivateUse1; }
  std::string library_version() const override { return "a simulated device"; }
  int count(std::string& why) const override {
    if (device_count() == 0) why = "QFT_SIM_DEVICES is 0";
    return device_count();
  }
  device::DeviceFacts facts(int index) const override {
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    device::DeviceFacts facts;
    facts.name = "simulated device";
    facts.uuid = c10::str("sim-", host, "-", getpid(), "-", index);  // each process simulates a separate device
    facts.torch_attention = facts.graphs = true;
    facts.unified = setting("QFT_SIM_UNIFIED", 0) != 0;
    facts.bf16 = setting("QFT_SIM_BF16", 1) != 0;
    if (const char* obstacle = std::getenv("QFT_SIM_OBSTACLE")) facts.obstacle = obstacle;
    facts.architecture = "none: PyTorch's kernels for the CPU";
    facts.memory = static_cast<std::int64_t>(memory(static_cast<c10::DeviceIndex>(index)).capacity());
    return facts;
  }
  void* allocate_pinned(std::size_t bytes) const override {
    const Lock lock = lock_machine();
    return pinned_memory().allocate(bytes, /*kept=*/false);
  }
  void free_pinned(void* data) const override {
    if (data == nullptr) return;
    const Lock lock = lock_machine();
    pinned_memory().free(data);
  }
  void copy_bytes(void* to, const void* from, std::size_t bytes, const c10::Stream& stream) const override {
    sim::copy_bytes(to, from, bytes, stream);
  }
  void refuse_waits(bool refuse) const override { sim::refuse_waits(refuse); }
  bool is_refusal(std::string_view what) const override { return sim::is_refusal(what); }
  std::unique_ptr<device::GraphRecorder> recorder(int index) const override { return std::make_unique<Recorder>(index); }
  const void* part(std::string_view module) const override { return module == "comm" ? comm_part() : nullptr; }
};

}  // namespace
}  // namespace qft::sim

extern "C" __attribute__((visibility("default"))) qft::device::BackendAbi qft_device_backend_abi = QFT_BACKEND_ABI;

extern "C" __attribute__((visibility("default"))) const qft::device::Backend* qft_device_backend() {
  static const qft::sim::SimBackend backend;
  if (qft::sim::device_count() > 0) qft::sim::register_device();
  return &backend;
}
