#include "qft/comm/device_communicator.h"

#include "qft/comm/collective_library.h"
#include "qft/comm/exchange.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/device/backends.h"
#include "qft/device/stream.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "backoff.h"
#include "device_group.h"

namespace qft::comm {

namespace {

using Library = CollectiveLibrary;
using Result = Library::Result;

/// Complete when the event behind the operation in the communication stream has happened.
class DeviceWork final : public WorkState {
 public:
  DeviceWork(std::shared_ptr<DeviceGroup> group, std::shared_ptr<const device::Event> done, c10::Device device)
      : group_(std::move(group)), done_(std::move(done)), device_(device) {}

  bool test() override {
    if (done_->query()) return true;
    group_->check_async();
    return false;
  }
  void wait() override { device::Stream::current(device_).wait(*done_); }
  void wait_host() override {
    wait_until([this] { return test(); });
  }
  // A peer may never join the operation, and freeing buffers that the device still uses would hang.
  void abandon() noexcept override {
    try {
      for (const Backoff backoff; !test() && backoff.waited() < kFinalWait;) backoff.pause();
      if (done_->query()) return;
    } catch (...) {
      // It has failed: abort it below.
    }
    group_->abort();
  }

 private:
  std::shared_ptr<DeviceGroup> group_;
  std::shared_ptr<const device::Event> done_;
  c10::Device device_;
};

bool all_equal(std::span<const std::size_t> counts) {
  return std::all_of(counts.begin(), counts.end(), [&](std::size_t c) { return c == counts[0]; });
}

/// Runs operations on a separate stream, in parallel to the computing stream.
class DeviceCommunicator final : public Communicator {
 public:
  DeviceCommunicator(std::unique_ptr<Communicator> host, c10::Device device, const Library& library, const Library::UniqueId& id,
                     std::string name)
      : Communicator(std::move(name), host->rank(), host->size()),
        host_(std::move(host)),
        device_(device),
        stream_(device::Stream::make(device, true)),
        group_(std::make_shared<DeviceGroup>(library, id, rank(), size(), device, this->name())) {}

  std::string_view backend() const override { return "nccl"; }
  Communicator& host() override { return *host_; }

 private:
  Work enqueue(std::string_view what, const DeviceGroup::Post& post) {
    return Work(std::make_shared<DeviceWork>(group_, group_->launch(stream_, what, post), device_));
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
  // A pair's messages arrive in call order, whatever their tags. A send delays later operations until its peer receives.
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
  std::shared_ptr<DeviceGroup> group_;
};

/// Sends rank 0's id, or its error, to all ranks.
Library::UniqueId shared_id(Communicator& host, const Library& library) {
  Library::UniqueId id{};
  const auto bytes = on_root(host, [&] {
    if (library.unique_id(id) != Result::ok) fail_in(library, nullptr, "unique_id");
    return std::string(id.data(), id.size());
  });
  std::ranges::copy(bytes, id.begin());
  return id;
}

/// Returns the library for the device's kind; throws Error if it cannot be used.
const Library& library_of(Communicator& host, c10::Device device) {
  const auto* library = device::part_of<Library>(device, "comm");
  agreed(host, [&] {
    require(library != nullptr, "no collective library for {}: start one rank, or set use_cpu: true", device.str());
    if (const std::string obstacle = library->obstacle(); !obstacle.empty()) fail("{}", obstacle);
  });
  static std::once_flag told;  // the first group contains all ranks
  std::call_once(told, [&] {
    if (host.rank() == 0) log::info("collectives by {}", library->version());
  });
  return *library;
}

}  // namespace

std::int64_t device_group_bytes(c10::Device device, int ranks) {
  const auto* library = device.is_cpu() ? nullptr : device::part_of<Library>(device, "comm");
  return library == nullptr ? 0 : library->group_bytes(ranks);
}

std::unique_ptr<Communicator> make_device_communicator(Communicator& host, c10::Device device, std::string name) {
  if (!device.is_cpu() && host.size() == 1) return make_self_communicator(std::move(name), device);
  auto own_host = host.split(0, host.rank(), name);
  if (device.is_cpu()) return own_host;
  const Library& library = library_of(host, device);
  const auto id = shared_id(host, library);
  return std::make_unique<DeviceCommunicator>(std::move(own_host), device, library, id, std::move(name));
}

}  // namespace qft::comm
