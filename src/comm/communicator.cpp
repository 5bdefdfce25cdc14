// A group of one rank: every operation is at most a copy.
#include "qft/comm/communicator.h"

#include "qft/comm/device_communicator.h"
#include "qft/core/activity.h"
#include "qft/core/clock.h"
#include "qft/core/error.h"
#include "qft/core/trace.h"
#include "qft/device/memory.h"

#include <cstdlib>
#include <numeric>
#include <utility>
#include <vector>

#include "call.h"

namespace qft::comm {
namespace {

bool checked_by_default() {
  const char* value = std::getenv("QFT_CHECK_COLLECTIVES");
  if (value != nullptr) return std::string_view(value) != "0" && std::string_view(value) != "";
#ifdef NDEBUG
  return false;
#else
  return true;
#endif
}

std::size_t sum(std::span<const std::size_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

void require_buffer(const void* data, std::size_t count, std::string_view what, OpKind kind) {
  QFT_ASSERT(data != nullptr || count == 0, "{}: null {} buffer for {} elements", name_of(kind), what, count);
}

void require_reduction(DType dtype, ReduceOp op, OpKind kind) {
  QFT_ASSERT(dtype != DType::boolean || op == ReduceOp::max || op == ReduceOp::min,
             "{} of BOOL supports max (or) and min (and), not {}", name_of(kind), name_of(op));
}

class SelfCommunicator final : public Communicator {
 public:
  SelfCommunicator(std::string name, c10::Device device) : Communicator(std::move(name), 0, 1), device_(device) {
    if (!device.is_cpu()) host_ = std::make_unique<SelfCommunicator>(this->name(), c10::kCPU);
  }

  std::string_view backend() const override { return "self"; }
  Communicator& host() override { return host_ ? *host_ : static_cast<Communicator&>(*this); }

 private:
  void do_barrier() override {}
  Work do_broadcast(void*, std::size_t, DType, int, Mode) override { return {}; }
  Work do_all_reduce(void*, std::size_t, DType, ReduceOp, Mode) override { return {}; }
  Work do_reduce_scatter(const void* send, void* recv, Counts counts, DType dtype, ReduceOp) override {
    return copy(send, recv, counts[0], dtype);
  }
  Work do_all_gather(const void* send, void* recv, Counts counts, DType dtype, Mode) override {
    return copy(send, recv, counts[0], dtype);
  }
  Work do_all_to_all(const void* send, Counts counts, void* recv, Counts, DType dtype) override {
    return copy(send, recv, counts[0], dtype);
  }
  // The base class rejects every peer in a group of one.
  Work do_send(const void*, std::size_t, DType, int, int) override { return {}; }
  Work do_recv(void*, std::size_t, DType, int, int) override { return {}; }
  std::unique_ptr<Communicator> do_split(int, int, std::string name) override {
    return make_self_communicator(std::move(name), device_);
  }

  Work copy(const void* send, void* recv, std::size_t count, DType dtype) {
    if (count > 0 && send != recv) device::copy_bytes(recv, send, count * size_of(dtype), device_);
    return {};
  }

  c10::Device device_;
  std::unique_ptr<Communicator> host_;
};

}  // namespace

Communicator::Communicator(std::string name, int rank, int size)
    : name_(std::move(name)), rank_(rank), size_(size), checked_(checked_by_default()) {}

void Communicator::begin(const Call& call) {
  const auto index = static_cast<std::size_t>(call.kind);
  ++counters_.calls[index];
  counters_.bytes[index] += call.received;
  const bool collective = call.kind != OpKind::send && call.kind != OpKind::recv;
  if (collective) ++sequence_;
  note_collective(name_, sequence_, call.kind, call.dtype, call.count, call.op, call.peer);
  if (checked_ && collective && size_ > 1) compare_over_ranks(call);
}

template <class Start>
Work Communicator::run(const Call& call, Start&& start) {
  const double began = trace::recording() ? steady_seconds() : 0.0;
  begin(call);
  Work work = start();
  if (began > 0.0 && &host() == this)  // a device's streams record their own work
    work.record({fmt::format("collectives: {}", name_), describe(call.kind, call.dtype, call.count, call.op, call.peer), began});
  return work;
}

void Communicator::barrier() {
  const activity::Waiting waiting;
  run({.kind = OpKind::barrier}, [&] {
    do_barrier();
    return Work();
  });
}

Work Communicator::broadcast(void* data, std::size_t count, DType dtype, int root, Mode mode) {
  require_buffer(data, count, "data", OpKind::broadcast);
  QFT_ASSERT(root >= 0 && root < size_, "broadcast: root {} is not a rank of '{}' (size {})", root, name_, size_);
  return run({.kind = OpKind::broadcast,
              .dtype = dtype,
              .count = count,
              .peer = root,
              .received = root == rank_ ? 0 : count * size_of(dtype)},
             [&] { return do_broadcast(data, count, dtype, root, mode); });
}
void Communicator::broadcast(void* data, std::size_t count, DType dtype, int root) {
  const activity::Waiting waiting;
  broadcast(data, count, dtype, root, Mode::blocking).wait();
}
Work Communicator::start_broadcast(void* data, std::size_t count, DType dtype, int root) {
  return broadcast(data, count, dtype, root, Mode::started);
}

Work Communicator::all_reduce(void* data, std::size_t count, DType dtype, ReduceOp op, Mode mode) {
  require_buffer(data, count, "data", OpKind::all_reduce);
  require_reduction(dtype, op, OpKind::all_reduce);
  const auto ranks = static_cast<std::size_t>(size_);
  return run({.kind = OpKind::all_reduce,
              .dtype = dtype,
              .count = count,
              .op = op,
              .received = 2 * count * size_of(dtype) * (ranks - 1) / ranks},
             [&] { return do_all_reduce(data, count, dtype, op, mode); });
}
void Communicator::all_reduce(void* data, std::size_t count, DType dtype, ReduceOp op) {
  const activity::Waiting waiting;
  all_reduce(data, count, dtype, op, Mode::blocking).wait();
}
Work Communicator::start_all_reduce(void* data, std::size_t count, DType dtype, ReduceOp op) {
  return all_reduce(data, count, dtype, op, Mode::started);
}

void Communicator::reduce_scatter(const void* send, void* recv, std::size_t count, DType dtype, ReduceOp op) {
  start_reduce_scatter(send, recv, count, dtype, op).wait();
}
Work Communicator::start_reduce_scatter(const void* send, void* recv, std::size_t count, DType dtype, ReduceOp op) {
  const std::vector<std::size_t> counts(static_cast<std::size_t>(size_), count);
  return start_reduce_scatter_v(send, recv, counts, dtype, op);
}
void Communicator::reduce_scatter_v(const void* send, void* recv, Counts counts, DType dtype, ReduceOp op) {
  start_reduce_scatter_v(send, recv, counts, dtype, op).wait();
}
Work Communicator::start_reduce_scatter_v(const void* send, void* recv, Counts counts, DType dtype, ReduceOp op) {
  QFT_ASSERT(counts.size() == static_cast<std::size_t>(size_), "reduce_scatter: {} counts for {} ranks", counts.size(), size_);
  const auto total = sum(counts);
  const auto own = counts[static_cast<std::size_t>(rank_)];
  require_buffer(send, total, "send", OpKind::reduce_scatter);
  require_buffer(recv, own, "receive", OpKind::reduce_scatter);
  require_reduction(dtype, op, OpKind::reduce_scatter);
  return run({.kind = OpKind::reduce_scatter,
              .dtype = dtype,
              .count = total,
              .op = op,
              .received = (total - own) * size_of(dtype),
              .counts = counts},
             [&] { return do_reduce_scatter(send, recv, counts, dtype, op); });
}

Work Communicator::all_gather(const void* send, void* recv, Counts counts, DType dtype, Mode mode) {
  QFT_ASSERT(counts.size() == static_cast<std::size_t>(size_), "all_gather: {} counts for {} ranks", counts.size(), size_);
  const auto total = sum(counts);
  const auto own = counts[static_cast<std::size_t>(rank_)];
  require_buffer(send, own, "send", OpKind::all_gather);
  require_buffer(recv, total, "receive", OpKind::all_gather);
  return run(
      {.kind = OpKind::all_gather, .dtype = dtype, .count = total, .received = (total - own) * size_of(dtype), .counts = counts},
      [&] { return do_all_gather(send, recv, counts, dtype, mode); });
}
void Communicator::all_gather(const void* send, void* recv, std::size_t count, DType dtype) {
  const std::vector<std::size_t> counts(static_cast<std::size_t>(size_), count);
  const activity::Waiting waiting;
  all_gather(send, recv, counts, dtype, Mode::blocking).wait();
}
Work Communicator::start_all_gather(const void* send, void* recv, std::size_t count, DType dtype) {
  const std::vector<std::size_t> counts(static_cast<std::size_t>(size_), count);
  return all_gather(send, recv, counts, dtype, Mode::started);
}
void Communicator::all_gather_v(const void* send, void* recv, Counts counts, DType dtype) {
  const activity::Waiting waiting;
  all_gather(send, recv, counts, dtype, Mode::blocking).wait();
}
Work Communicator::start_all_gather_v(const void* send, void* recv, Counts counts, DType dtype) {
  return all_gather(send, recv, counts, dtype, Mode::started);
}

void Communicator::all_to_all(const void* send, void* recv, std::size_t count, DType dtype) {
  const std::vector<std::size_t> counts(static_cast<std::size_t>(size_), count);
  all_to_all_v(send, counts, recv, counts, dtype);
}
void Communicator::all_to_all_v(const void* send, Counts send_counts, void* recv, Counts recv_counts, DType dtype) {
  start_all_to_all_v(send, send_counts, recv, recv_counts, dtype).wait();
}
Work Communicator::start_all_to_all_v(const void* send, Counts send_counts, void* recv, Counts recv_counts, DType dtype) {
  const auto ranks = static_cast<std::size_t>(size_);
  QFT_ASSERT(send_counts.size() == ranks && recv_counts.size() == ranks, "all_to_all: {} send and {} receive counts for {} ranks",
             send_counts.size(), recv_counts.size(), size_);
  const auto total = sum(recv_counts);
  const auto own = static_cast<std::size_t>(rank_);
  QFT_ASSERT(send_counts[own] == recv_counts[own], "all_to_all: {} elements to and {} from this rank itself", send_counts[own],
             recv_counts[own]);
  require_buffer(send, sum(send_counts), "send", OpKind::all_to_all);
  require_buffer(recv, total, "receive", OpKind::all_to_all);
  return run(
      {.kind = OpKind::all_to_all, .dtype = dtype, .count = total, .received = (total - recv_counts[own]) * size_of(dtype)}, [&] {
        if (checked_ && size_ > 1) compare_slices(send_counts, recv_counts);
        return do_all_to_all(send, send_counts, recv, recv_counts, dtype);
      });
}

void Communicator::send(const void* data, std::size_t count, DType dtype, int peer, int tag) {
  start_send(data, count, dtype, peer, tag).wait();
}
Work Communicator::start_send(const void* data, std::size_t count, DType dtype, int peer, int tag) {
  require_buffer(data, count, "send", OpKind::send);
  QFT_ASSERT(peer >= 0 && peer < size_ && peer != rank_, "send: {} is not another rank of '{}' (size {})", peer, name_, size_);
  QFT_ASSERT(tag >= 0 && tag <= 32767, "send: tag {} is not in 0..32767", tag);
  return run({.kind = OpKind::send, .dtype = dtype, .count = count, .peer = peer},
             [&] { return do_send(data, count, dtype, peer, tag); });
}
void Communicator::recv(void* data, std::size_t count, DType dtype, int peer, int tag) {
  start_recv(data, count, dtype, peer, tag).wait();
}
Work Communicator::start_recv(void* data, std::size_t count, DType dtype, int peer, int tag) {
  require_buffer(data, count, "receive", OpKind::recv);
  QFT_ASSERT(peer >= 0 && peer < size_ && peer != rank_, "recv: {} is not another rank of '{}' (size {})", peer, name_, size_);
  QFT_ASSERT(tag >= 0 && tag <= 32767, "recv: tag {} is not in 0..32767", tag);
  return run({.kind = OpKind::recv, .dtype = dtype, .count = count, .peer = peer, .received = count * size_of(dtype)},
             [&] { return do_recv(data, count, dtype, peer, tag); });
}

std::unique_ptr<Communicator> Communicator::split(int color, int key, std::string name) {
  QFT_ASSERT(color >= 0, "split of '{}': colour {} is negative", name_, color);
  const activity::Waiting waiting;
  auto part = do_split(color, key, std::move(name));
  part->set_checked(checked_);
  return part;
}

std::unique_ptr<Communicator> make_self_communicator(std::string name) {
  return make_self_communicator(std::move(name), c10::kCPU);
}

std::unique_ptr<Communicator> make_self_communicator(std::string name, c10::Device device) {
  return std::make_unique<SelfCommunicator>(std::move(name), device);
}

}  // namespace qft::comm
