#include "qft/comm/device_communicator.h"

#include "qft/comm/collective_library.h"
#include "qft/comm/exchange.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/device/backends.h"
#include "qft/device/stream.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

namespace qft::comm {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kInitLimit{180};
constexpr std::chrono::seconds kFinalizeLimit{10};

using Library = CollectiveLibrary;
using Result = Library::Result;

[[noreturn]] void fail_in(const Library& library, Library::Group group, std::string_view what) {
  fail("{}: {} failed: {}: set NCCL_DEBUG=WARN for its own log", library.version(), what, library.last_error(group));
}

/// One group in non-blocking mode: a call may be under way when it returns, and a dead peer shows in the state.
class Handle {
 public:
  Handle(const Library& library, const Library::UniqueId& id, int rank, int size) : library_(library) {
    complete(library_.init(group_, size, id, rank), "init", kInitLimit);
  }
  ~Handle() {
    if (group_ == nullptr) return;
    if (std::uncaught_exceptions() > 0 || !finalize()) {
      library_.abort(group_);
    } else {
      library_.destroy(group_);
    }
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  const Library& library() const { return library_; }
  Library::Group get() const { return group_; }

  void complete(Result result, std::string_view what, std::chrono::seconds limit = kInitLimit) const {
    const auto deadline = Clock::now() + limit;
    while (result == Result::in_progress) {
      result = library_.state(group_);
      if (result != Result::in_progress) break;
      require(Clock::now() < deadline,
              "{}: {} is not done after {} s: a rank has not come, or the network between GPUs does not work (NCCL_DEBUG=INFO, "
              "NCCL_SOCKET_IFNAME)",
              library_.version(), what, limit.count());
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    if (result != Result::ok) fail_in(library_, group_, what);
  }

  /// Throws if an operation under way has failed.
  void check_async() const {
    if (library_.state(group_) == Result::failed) fail_in(library_, group_, "an operation under way");
  }

 private:
  bool finalize() const noexcept {
    try {
      complete(library_.finalize(group_), "finalize", kFinalizeLimit);
      return true;
    } catch (const std::exception& e) {
      log::warn("{}", e.what());
      return false;
    }
  }
  const Library& library_;
  Library::Group group_ = nullptr;
};

// Done when the event behind the operation in the communication stream has happened.
class DeviceWork final : public WorkState {
 public:
  DeviceWork(std::shared_ptr<Handle> handle, device::Event done, c10::Device device)
      : handle_(std::move(handle)), done_(std::move(done)), device_(device) {}

  bool test() override {
    if (done_.query()) return true;
    handle_->check_async();
    return false;
  }
  void wait() override { device::Stream::current(device_).wait(done_); }
  void wait_host() override {
    while (!test()) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }

 private:
  std::shared_ptr<Handle> handle_;
  device::Event done_;
  c10::Device device_;
};

bool all_equal(std::span<const std::size_t> counts) {
  return std::all_of(counts.begin(), counts.end(), [&](std::size_t c) { return c == counts[0]; });
}

/// On a stream of its own beside the one that computes.
class DeviceCommunicator final : public Communicator {
 public:
  DeviceCommunicator(std::unique_ptr<Communicator> host, c10::Device device, const Library& library, const Library::UniqueId& id,
                     std::string name)
      : Communicator(std::move(name), host->rank(), host->size()),
        host_(std::move(host)),
        device_(device),
        stream_(device::Stream::make(device, true)),
        handle_(std::make_shared<Handle>(library, id, rank(), size())) {}

  std::string_view backend() const override { return "nccl"; }
  Communicator& host() override { return *host_; }

 private:
  /// Queues what `post(library, group, stream)` calls behind the compute stream's work so far.
  template <class F>
  Work enqueue(std::string_view what, F&& post) {
    device::Event ready(device_);
    ready.record(device::Stream::current(device_));
    stream_.wait(ready);
    const Library& library = handle_->library();
    library.group_start();
    const Result posted = post(library, handle_->get(), stream_.native());
    const Result ended = library.group_end();
    if (posted == Result::failed) fail_in(library, handle_->get(), what);
    handle_->complete(ended, what);
    device::Event done(device_);
    done.record(stream_);
    return Work(std::make_shared<DeviceWork>(handle_, std::move(done), device_));
  }

  void do_barrier() override { host_->barrier(); }

  Work do_broadcast(void* data, std::size_t count, DType dtype, int root, Mode) override {
    return enqueue("broadcast", [&](const Library& library, Library::Group group, Library::Stream stream) {
      return library.broadcast(data, data, count * size_of(dtype), root, group, stream);
    });
  }
  Work do_all_reduce(void* data, std::size_t count, DType dtype, ReduceOp op, Mode) override {
    return enqueue("all_reduce", [&](const Library& library, Library::Group group, Library::Stream stream) {
      return library.all_reduce(data, count, dtype, op, group, stream);
    });
  }
  Work do_reduce_scatter(const void* send, void* recv, Counts counts, DType dtype, ReduceOp op) override {
    return enqueue("reduce_scatter", [&](const Library& library, Library::Group group, Library::Stream stream) {
      if (all_equal(counts)) return library.reduce_scatter(send, recv, counts[0], dtype, op, group, stream);
      const auto* slice = static_cast<const char*>(send);
      Result result = Result::ok;
      for (int r = 0; r < size() && result != Result::failed; ++r) {
        const auto count = counts[static_cast<std::size_t>(r)];
        if (count > 0) result = library.reduce(slice, recv, count, dtype, op, r, group, stream);
        slice += count * size_of(dtype);
      }
      return result;
    });
  }
  Work do_all_gather(const void* send, void* recv, Counts counts, DType dtype, Mode) override {
    return enqueue("all_gather", [&](const Library& library, Library::Group group, Library::Stream stream) {
      const auto width = size_of(dtype);
      if (all_equal(counts)) return library.all_gather(send, recv, counts[0] * width, group, stream);
      auto* slice = static_cast<char*>(recv);
      Result result = Result::ok;
      for (int r = 0; r < size() && result != Result::failed; ++r) {
        const auto bytes = counts[static_cast<std::size_t>(r)] * width;
        if (bytes > 0) result = library.broadcast(r == rank() ? send : slice, slice, bytes, r, group, stream);
        slice += bytes;
      }
      return result;
    });
  }
  Work do_all_to_all(const void* send, Counts send_counts, void* recv, Counts recv_counts, DType dtype) override {
    return enqueue("all_to_all", [&](const Library& library, Library::Group group, Library::Stream stream) {
      const auto width = size_of(dtype);
      const auto* source = static_cast<const char*>(send);
      auto* target = static_cast<char*>(recv);
      Result result = Result::ok;
      for (int r = 0; r < size() && result != Result::failed; ++r) {
        const auto out = send_counts[static_cast<std::size_t>(r)] * width;
        const auto in = recv_counts[static_cast<std::size_t>(r)] * width;
        if (out > 0) result = library.send(source, out, r, group, stream);
        if (in > 0 && result != Result::failed) result = library.recv(target, in, r, group, stream);
        source += out;
        target += in;
      }
      return result;
    });
  }
  // A pair's messages arrive in the order of their calls, whatever their tags; a send holds up what is started after it until its
  // peer receives.
  Work do_send(const void* data, std::size_t count, DType dtype, int peer, int) override {
    return enqueue("send", [&](const Library& library, Library::Group group, Library::Stream stream) {
      return library.send(data, count * size_of(dtype), peer, group, stream);
    });
  }
  Work do_recv(void* data, std::size_t count, DType dtype, int peer, int) override {
    return enqueue("recv", [&](const Library& library, Library::Group group, Library::Stream stream) {
      return library.recv(data, count * size_of(dtype), peer, group, stream);
    });
  }
  std::unique_ptr<Communicator> do_split(int color, int key, std::string name) override {
    const auto part = host_->split(color, key, name);
    return make_device_communicator(*part, device_, std::move(name));
  }

  std::unique_ptr<Communicator> host_;
  c10::Device device_;
  device::Stream stream_;
  std::shared_ptr<Handle> handle_;
};

/// Rank 0's id for all, or its error.
Library::UniqueId shared_id(Communicator& host, const Library& library) {
  Library::UniqueId id{};
  const auto bytes = on_root(host, [&] {
    if (library.unique_id(id) != Result::ok) fail_in(library, nullptr, "unique_id");
    return std::string(id.data(), id.size());
  });
  std::ranges::copy(bytes, id.begin());
  return id;
}

/// The library of the device's kind; one that does.
const Library& library_of(Communicator& host, c10::Device device) {
  const auto* library = device::part_of<Library>(device, "comm");
  agreed(host, [&] {
    require(library != nullptr, "there is no library of collectives for {}: choose the device cpu", device.str());
    if (const std::string obstacle = library->obstacle(); !obstacle.empty()) fail("{}", obstacle);
  });
  return *library;
}

}  // namespace

std::unique_ptr<Communicator> make_device_communicator(Communicator& host, c10::Device device, std::string name) {
  if (!device.is_cpu() && host.size() == 1) return make_self_communicator(std::move(name), device);
  auto own_host = host.split(0, host.rank(), name);
  if (device.is_cpu()) return own_host;
  const Library& library = library_of(host, device);
  const auto id = shared_id(host, library);
  return std::make_unique<DeviceCommunicator>(std::move(own_host), device, library, id, std::move(name));
}

}  // namespace qft::comm
