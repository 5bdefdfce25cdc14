// NCCL for CUDA buffers, on a stream of its own beside the one that computes.
#include "qft/comm/device_communicator.h"
#include "qft/comm/exchange.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/device/stream.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <cuda_runtime_api.h>
#include <exception>
#include <thread>
#include <utility>

#include <nccl.h>

namespace qft::comm {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kInitLimit{180};
constexpr std::chrono::seconds kFinalizeLimit{10};

[[noreturn]] void fail_nccl(ncclResult_t result, ncclComm_t comm, std::string_view what) {
  const char* detail = ncclGetLastError(comm);
  fail("NCCL: {} failed: {} ({}): set NCCL_DEBUG=WARN for its own log", what, ncclGetErrorString(result),
       detail != nullptr && *detail != '\0' ? detail : "no detail");
}

// One ncclComm_t in non-blocking mode: calls may return ncclInProgress, and a dead peer shows in the asynchronous error.
class Handle {
 public:
  Handle(ncclUniqueId id, int rank, int size) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const auto result = ncclCommInitRankConfig(&comm_, size, id, rank, &config);
    complete(result, "ncclCommInitRankConfig", kInitLimit);
  }
  ~Handle() {
    if (comm_ == nullptr) return;
    if (std::uncaught_exceptions() > 0 || !finalize()) {
      ncclCommAbort(comm_);
    } else {
      ncclCommDestroy(comm_);
    }
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  ncclComm_t get() const { return comm_; }

  void complete(ncclResult_t result, std::string_view what, std::chrono::seconds limit = kInitLimit) const {
    const auto deadline = Clock::now() + limit;
    while (result == ncclInProgress) {
      const auto asked = ncclCommGetAsyncError(comm_, &result);
      if (asked != ncclSuccess) fail_nccl(asked, comm_, "ncclCommGetAsyncError");
      if (result != ncclInProgress) break;
      require(Clock::now() < deadline,
              "NCCL: {} is not done after {} s: a rank has not come, or the network between GPUs "
              "does not work (NCCL_DEBUG=INFO, NCCL_SOCKET_IFNAME)",
              what, limit.count());
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    if (result != ncclSuccess) fail_nccl(result, comm_, what);
  }

  /// Throws if an operation under way has failed.
  void check_async() const {
    ncclResult_t state = ncclSuccess;
    const auto asked = ncclCommGetAsyncError(comm_, &state);
    if (asked != ncclSuccess) fail_nccl(asked, comm_, "ncclCommGetAsyncError");
    if (state != ncclSuccess && state != ncclInProgress) fail_nccl(state, comm_, "an operation under way");
  }

 private:
  bool finalize() const noexcept {
    try {
      complete(ncclCommFinalize(comm_), "ncclCommFinalize", kFinalizeLimit);
      return true;
    } catch (const std::exception& e) {
      log::warn("{}", e.what());
      return false;
    }
  }
  ncclComm_t comm_ = nullptr;
};

// Done when the event behind the operation in the communication stream has happened.
class NcclWork final : public WorkState {
 public:
  NcclWork(std::shared_ptr<Handle> handle, device::Event done, c10::Device device)
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

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return ncclFloat64;
    case DType::f32:
      return ncclFloat32;
    case DType::f16:
      return ncclFloat16;
    case DType::bf16:
      return ncclBfloat16;
    case DType::i64:
      return ncclInt64;
    case DType::i32:
      return ncclInt32;
    case DType::i8:
      return ncclInt8;
    case DType::u8:
    case DType::boolean:
      return ncclUint8;
    case DType::i16:
      break;
  }
  fail("NCCL cannot reduce {}: use I32", safetensors_name(dtype));
}

ncclRedOp_t nccl_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return ncclSum;
    case ReduceOp::prod:
      return ncclProd;
    case ReduceOp::max:
      return ncclMax;
    case ReduceOp::min:
      return ncclMin;
  }
  fail("NCCL has no reduction {}", static_cast<int>(op));
}

bool all_equal(std::span<const std::size_t> counts) {
  return std::all_of(counts.begin(), counts.end(), [&](std::size_t c) { return c == counts[0]; });
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::unique_ptr<Communicator> host, c10::Device device, const ncclUniqueId& id, std::string name)
      : Communicator(std::move(name), host->rank(), host->size()),
        host_(std::move(host)),
        device_(device),
        stream_(device::Stream::make(device, true)),
        handle_(std::make_shared<Handle>(id, rank(), size())) {}

  std::string_view backend() const override { return "nccl"; }
  Communicator& host() override { return *host_; }

 private:
  // Queues what `post` calls behind the compute stream's work so far.
  template <class F>
  Work enqueue(std::string_view what, F&& post) {
    device::Event ready(device_);
    ready.record(device::Stream::current(device_));
    stream_.wait(ready);
    ncclGroupStart();
    const auto posted = post(handle_->get(), static_cast<cudaStream_t>(stream_.native()));
    const auto ended = ncclGroupEnd();
    if (posted != ncclSuccess && posted != ncclInProgress) fail_nccl(posted, handle_->get(), what);
    handle_->complete(ended, what);
    device::Event done(device_);
    done.record(stream_);
    return Work(std::make_shared<NcclWork>(handle_, std::move(done), device_));
  }

  void do_barrier() override { host_->barrier(); }

  Work do_broadcast(void* data, std::size_t count, DType dtype, int root, Mode) override {
    return enqueue("ncclBroadcast", [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclBroadcast(data, data, count * size_of(dtype), ncclUint8, root, comm, stream);
    });
  }
  Work do_all_reduce(void* data, std::size_t count, DType dtype, ReduceOp op, Mode) override {
    return enqueue("ncclAllReduce", [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclAllReduce(data, data, count, nccl_type(dtype), nccl_op(op), comm, stream);
    });
  }
  Work do_reduce_scatter(const void* send, void* recv, Counts counts, DType dtype, ReduceOp op) override {
    return enqueue("ncclReduceScatter", [&](ncclComm_t comm, cudaStream_t stream) {
      const auto type = nccl_type(dtype);
      if (all_equal(counts)) return ncclReduceScatter(send, recv, counts[0], type, nccl_op(op), comm, stream);
      const auto* slice = static_cast<const char*>(send);
      auto result = ncclSuccess;
      for (int r = 0; r < size() && result == ncclSuccess; ++r) {
        const auto count = counts[static_cast<std::size_t>(r)];
        if (count > 0) result = ncclReduce(slice, recv, count, type, nccl_op(op), r, comm, stream);
        slice += count * size_of(dtype);
      }
      return result;
    });
  }
  Work do_all_gather(const void* send, void* recv, Counts counts, DType dtype, Mode) override {
    return enqueue("ncclAllGather", [&](ncclComm_t comm, cudaStream_t stream) {
      const auto width = size_of(dtype);
      if (all_equal(counts)) return ncclAllGather(send, recv, counts[0] * width, ncclUint8, comm, stream);
      auto* slice = static_cast<char*>(recv);
      auto result = ncclSuccess;
      for (int r = 0; r < size() && result == ncclSuccess; ++r) {
        const auto bytes = counts[static_cast<std::size_t>(r)] * width;
        if (bytes > 0) result = ncclBroadcast(r == rank() ? send : slice, slice, bytes, ncclUint8, r, comm, stream);
        slice += bytes;
      }
      return result;
    });
  }
  Work do_all_to_all(const void* send, Counts send_counts, void* recv, Counts recv_counts, DType dtype) override {
    return enqueue("all_to_all", [&](ncclComm_t comm, cudaStream_t stream) {
      const auto width = size_of(dtype);
      const auto* source = static_cast<const char*>(send);
      auto* target = static_cast<char*>(recv);
      auto result = ncclSuccess;
      for (int r = 0; r < size() && result == ncclSuccess; ++r) {
        const auto out = send_counts[static_cast<std::size_t>(r)] * width;
        const auto in = recv_counts[static_cast<std::size_t>(r)] * width;
        if (out > 0) result = ncclSend(source, out, ncclUint8, r, comm, stream);
        if (in > 0 && result == ncclSuccess) result = ncclRecv(target, in, ncclUint8, r, comm, stream);
        source += out;
        target += in;
      }
      return result;
    });
  }
  // A pair's messages arrive in the order of their calls, whatever their tags.
  Work do_send(const void* data, std::size_t count, DType dtype, int peer, int) override {
    return enqueue("ncclSend", [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclSend(data, count * size_of(dtype), ncclUint8, peer, comm, stream);
    });
  }
  Work do_recv(void* data, std::size_t count, DType dtype, int peer, int) override {
    return enqueue("ncclRecv", [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclRecv(data, count * size_of(dtype), ncclUint8, peer, comm, stream);
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

void check_version() {
  int version = 0;
  ncclGetVersion(&version);
  require(version / 10000 == NCCL_MAJOR && version >= NCCL_VERSION_CODE,
          "libnccl at run time is {}, but qft was built with {}.{}.{}: another libnccl comes first in "
          "LD_LIBRARY_PATH",
          version, NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
}

// Rank 0's id for all, or its error.
ncclUniqueId shared_id(Communicator& host) {
  const auto bytes = on_root(host, [] {
    ncclUniqueId id{};
    const auto result = ncclGetUniqueId(&id);
    if (result != ncclSuccess) fail_nccl(result, nullptr, "ncclGetUniqueId");
    return std::string(id.internal, sizeof(id.internal));
  });
  ncclUniqueId id{};
  std::memcpy(id.internal, bytes.data(), std::min(bytes.size(), sizeof(id.internal)));
  return id;
}

}  // namespace

std::unique_ptr<Communicator> make_device_communicator(Communicator& host, c10::Device device, std::string name) {
  if (device.is_cuda() && host.size() == 1) return make_self_communicator(std::move(name), true);
  auto own_host = host.split(0, host.rank(), name);
  if (device.is_cpu()) return own_host;
  agreed(host, check_version);
  const auto id = shared_id(host);
  return std::make_unique<NcclCommunicator>(std::move(own_host), device, id, std::move(name));
}

}  // namespace qft::comm
