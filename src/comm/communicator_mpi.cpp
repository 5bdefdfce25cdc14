#include <cstring>
#include <exception>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "mpi_support.h"
#include "progress.h"
#include "reduce_kernels.h"
#include "ring.h"

namespace qft::comm {

namespace {

// Buffers up to this size use MPI's own collectives, which have lower latency; larger ones use the ring.
constexpr std::size_t kSmallBytes = std::size_t{64} << 10;
// Every MPI supports tags 0..32767; the rings use a separate communicator.
constexpr int kTags = 32768;

std::vector<std::size_t> even_counts(std::size_t count, int parts) {
  const auto n = static_cast<std::size_t>(parts);
  std::vector<std::size_t> counts(n, count / n);
  for (std::size_t i = 0; i < count % n; ++i) ++counts[i];
  return counts;
}

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(MPI_Comm comm, MPI_Comm ring, std::string name, int rank, int size)
      : Communicator(std::move(name), rank, size), comm_(comm), ring_(ring) {}

  ~MpiCommunicator() override {
    // Freeing is collective: while an exception unwinds the stack, the other ranks may not take part.
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized != 0 || std::uncaught_exceptions() > 0) return;
    MPI_Comm_free(&ring_);
    MPI_Comm_free(&comm_);
  }

  std::string_view backend() const override { return "mpi"; }

 private:
  void do_barrier() override {
    MPI_Request request = MPI_REQUEST_NULL;
    mpi_check(MPI_Ibarrier(comm_, &request), "MPI_Ibarrier");
    RequestWork({request}, "MPI_Ibarrier").wait();
  }

  Work do_broadcast(void* data, std::size_t count, DType dtype, int root, Mode mode) override;
  Work do_all_reduce(void* data, std::size_t count, DType dtype, ReduceOp op, Mode mode) override;
  Work do_reduce_scatter(const void* send, void* recv, Counts counts, DType dtype, ReduceOp op) override;
  Work do_all_gather(const void* send, void* recv, Counts counts, DType dtype, Mode mode) override;
  Work do_all_to_all(const void* send, Counts send_counts, void* recv, Counts recv_counts, DType dtype) override;

  Work do_send(const void* data, std::size_t count, DType dtype, int peer, int tag) override {
    std::vector<MPI_Request> requests;
    post_send(data, count * size_of(dtype), peer, tag, comm_, requests);
    return launch(std::make_shared<RequestWork>(std::move(requests), "MPI_Isend"));
  }
  Work do_recv(void* data, std::size_t count, DType dtype, int peer, int tag) override {
    std::vector<MPI_Request> requests;
    post_recv(data, count * size_of(dtype), peer, tag, comm_, requests);
    return launch(std::make_shared<RequestWork>(std::move(requests), "MPI_Irecv"));
  }

  std::unique_ptr<Communicator> do_split(int color, int key, std::string name) override {
    MPI_Comm part = MPI_COMM_NULL;
    mpi_check(MPI_Comm_split(comm_, color, key, &part), "MPI_Comm_split");
    auto result = make_mpi_communicator(part, std::move(name));
    MPI_Comm_free(&part);
    return result;
  }

  Work small_all_reduce(void* data, std::size_t count, DType dtype, ReduceOp op, Mode mode);
  Work run_ring(RingPlan plan);
  int reserve_tags(std::size_t count) {
    const auto first = next_tag_;
    next_tag_ = static_cast<int>((static_cast<std::size_t>(next_tag_) + count) % kTags);
    return first;
  }

  MPI_Comm comm_;
  MPI_Comm ring_;
  std::shared_ptr<GatherTurns> turns_ = std::make_shared<GatherTurns>();  ///< shared: a work may outlive the communicator
  int next_tag_ = 0;
};

Work MpiCommunicator::run_ring(RingPlan plan) {
  plan.comm = ring_;
  plan.rank = rank();
  plan.size = size();
  const auto first_tag = reserve_tags(ring_segments(plan));
  return launch(make_ring(std::move(plan), first_tag, kTags, progress_thread_runs() ? turns_ : nullptr));
}

Work MpiCommunicator::do_broadcast(void* data, std::size_t count, DType dtype, int root, Mode mode) {
  const auto bytes = count * size_of(dtype);
  if (mode == Mode::blocking && bytes <= kSmallBytes) {
    mpi_check(MPI_Bcast(data, static_cast<int>(bytes), MPI_BYTE, root, comm_), "MPI_Bcast");
    return {};
  }
  std::vector<MPI_Request> requests;
  for (std::size_t done = 0; done < bytes; done += kMaxMessageBytes) {
    const auto piece = static_cast<int>(std::min(kMaxMessageBytes, bytes - done));
    requests.push_back(MPI_REQUEST_NULL);
    mpi_check(MPI_Ibcast(static_cast<char*>(data) + done, piece, MPI_BYTE, root, comm_, &requests.back()), "MPI_Ibcast");
  }
  return launch(std::make_shared<RequestWork>(std::move(requests), "MPI_Ibcast"));
}

Work MpiCommunicator::do_all_reduce(void* data, std::size_t count, DType dtype, ReduceOp op, Mode mode) {
  if (count * size_of(dtype) <= kSmallBytes) return small_all_reduce(data, count, dtype, op, mode);
  RingPlan plan{.dtype = dtype, .op = op, .send = data, .recv = data, .reduces = true, .gathers = true, .slices = {}};
  std::size_t offset = 0;
  for (const auto part : even_counts(count, size())) {
    plan.slices.push_back({offset, offset, part});
    offset += part;
  }
  return run_ring(std::move(plan));
}

Work MpiCommunicator::small_all_reduce(void* data, std::size_t count, DType dtype, ReduceOp op, Mode mode) {
  const auto wide = accumulation_type(dtype);
  const bool widened = wide != dtype;
  auto copy = std::make_shared<std::vector<float>>(widened ? count : 0);
  void* buffer = data;
  if (widened) {
    buffer = copy->data();
    widen(buffer, data, count, dtype);
  }
  const auto n = static_cast<int>(count);
  if (mode == Mode::blocking) {
    mpi_check(MPI_Allreduce(MPI_IN_PLACE, buffer, n, mpi_type(wide), mpi_op(op), comm_), "MPI_Allreduce");
    if (widened) narrow(data, buffer, count, dtype);
    return {};
  }
  MPI_Request request = MPI_REQUEST_NULL;
  mpi_check(MPI_Iallreduce(MPI_IN_PLACE, buffer, n, mpi_type(wide), mpi_op(op), comm_, &request), "MPI_Iallreduce");
  std::function<void()> finish;
  if (widened) finish = [copy, data, count, dtype] { narrow(data, copy->data(), count, dtype); };
  return launch(std::make_shared<RequestWork>(std::vector<MPI_Request>{request}, "MPI_Iallreduce", std::move(finish)));
}

Work MpiCommunicator::do_reduce_scatter(const void* send, void* recv, Counts counts, DType dtype, ReduceOp op) {
  RingPlan plan{.dtype = dtype, .op = op, .send = send, .recv = recv, .reduces = true, .slices = {}};
  std::size_t offset = 0;
  for (const auto part : counts) {
    plan.slices.push_back({offset, 0, part});
    offset += part;
  }
  return run_ring(std::move(plan));
}

Work MpiCommunicator::do_all_gather(const void* send, void* recv, Counts counts, DType dtype, Mode mode) {
  const auto total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  const auto own = static_cast<std::size_t>(rank());
  if (mode == Mode::blocking && total * size_of(dtype) <= kSmallBytes) {
    std::vector<int> lengths(counts.begin(), counts.end());
    std::vector<int> offsets(lengths.size(), 0);
    std::partial_sum(lengths.begin(), lengths.end() - 1, offsets.begin() + 1);
    const auto* slice = static_cast<char*>(recv) + static_cast<std::size_t>(offsets[own]) * size_of(dtype);
    const auto type = mpi_type(dtype);
    mpi_check(MPI_Allgatherv(send == slice ? MPI_IN_PLACE : send, lengths[own], type, recv, lengths.data(), offsets.data(), type,
                             comm_),
              "MPI_Allgatherv");
    return {};
  }
  RingPlan plan{.dtype = dtype, .send = send, .recv = recv, .gathers = true, .slices = {}};
  std::size_t offset = 0;
  for (const auto part : counts) {
    plan.slices.push_back({0, offset, part});
    offset += part;
  }
  return run_ring(std::move(plan));
}

Work MpiCommunicator::do_all_to_all(const void* send, Counts send_counts, void* recv, Counts recv_counts, DType dtype) {
  const auto width = size_of(dtype);
  const auto* source = static_cast<const char*>(send);
  auto* target = static_cast<char*>(recv);
  const auto tag = reserve_tags(1);
  std::vector<MPI_Request> requests;
  for (int r = 0; r < size(); ++r) {
    const auto i = static_cast<std::size_t>(r);
    if (r == rank()) {
      if (recv_counts[i] > 0) std::memcpy(target, source, recv_counts[i] * width);
    } else {
      post_recv(target, recv_counts[i] * width, r, tag, ring_, requests);
      post_send(source, send_counts[i] * width, r, tag, ring_, requests);
    }
    source += send_counts[i] * width;
    target += recv_counts[i] * width;
  }
  return launch(std::make_shared<RequestWork>(std::move(requests), "all_to_all"));
}

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm comm, std::string name) {
  int rank = 0;
  int size = 1;
  mpi_check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  mpi_check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  if (size == 1) return make_self_communicator(std::move(name));
  MPI_Comm own = MPI_COMM_NULL;
  MPI_Comm ring = MPI_COMM_NULL;
  mpi_check(MPI_Comm_dup(comm, &own), "MPI_Comm_dup");
  mpi_check(MPI_Comm_dup(comm, &ring), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(ring, MPI_ERRORS_RETURN);
  return std::make_unique<MpiCommunicator>(own, ring, std::move(name), rank, size);
}

}  // namespace qft::comm
