// Collectives and messages among a group of ranks: one checked, counted and traced interface over MPI, NCCL or a single rank.
#pragma once

#include "qft/comm/work.h"
#include "qft/core/dtype.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace qft::comm {

enum class ReduceOp : std::uint8_t { sum, prod, max, min };
enum class OpKind : std::uint8_t { barrier, broadcast, all_reduce, reduce_scatter, all_gather, all_to_all, send, recv };
inline constexpr std::size_t kOpKinds = 8;

std::string_view name_of(ReduceOp op);
std::string_view name_of(OpKind kind);

/// Calls and bytes per kind of operation. Bytes count what this rank receives under the bandwidth-optimal algorithm. With n ranks
/// and a whole buffer of S bytes: all_reduce 2 S (n-1)/n; all_gather and reduce_scatter S minus this rank's slice; all_to_all the
/// slices from other ranks; broadcast S, 0 on the root; recv S; send and barrier 0.
struct Counters {
  std::array<std::uint64_t, kOpKinds> calls{};
  std::array<std::uint64_t, kOpKinds> bytes{};
  std::uint64_t total_bytes() const;
};

/// The operation that this process started last, for watchdogs and error reports.
struct LastCollective {
  std::uint64_t number = 0;  ///< index among the collectives of its communicator: 1, 2, ...; 0: none yet
  std::string communicator;  ///< "shard"
  std::string call;          ///< "all_reduce(sum, F32, 1024)"
};

/// All operations are collective unless stated otherwise: all ranks of the group call the same operations in the same order with
/// matching arguments. Call from one thread at a time. Counts are in elements and may be 0 or exceed 2^31. Host backends take
/// host pointers; NCCL takes device pointers on its device. start_* return at once; their buffers must stay untouched until the
/// Work is complete. Bad arguments throw Error before anything is sent. Sums of f16 and bf16 are accumulated in fp32 and rounded
/// once (MPI); NCCL rounds at each hop. A reduction gives the same bits on every rank and in every run on the same number of
/// ranks.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }
  /// "self", "mpi" or "nccl".
  virtual std::string_view backend() const = 0;
  /// Returns the same ranks for host memory: *this, except for NCCL.
  virtual Communicator& host() { return *this; }

  void barrier();

  /// Copies `data`[count] of `root` to all ranks.
  void broadcast(void* data, std::size_t count, DType dtype, int root);
  [[nodiscard]] Work start_broadcast(void* data, std::size_t count, DType dtype, int root);

  /// Replaces data[count] by the reduction over all ranks, in place. boolean supports max (or) and min (and) only.
  void all_reduce(void* data, std::size_t count, DType dtype, ReduceOp op = ReduceOp::sum);
  [[nodiscard]] Work start_all_reduce(void* data, std::size_t count, DType dtype, ReduceOp op = ReduceOp::sum);

  /// Reduces send[size()*count]; rank r gets slice r in recv[count]. recv may be that slice of send.
  void reduce_scatter(const void* send, void* recv, std::size_t count, DType dtype, ReduceOp op = ReduceOp::sum);
  [[nodiscard]] Work start_reduce_scatter(const void* send, void* recv, std::size_t count, DType dtype,
                                          ReduceOp op = ReduceOp::sum);
  /// Slice r has counts[r] elements; `counts` is the same on all ranks.
  void reduce_scatter_v(const void* send, void* recv, std::span<const std::size_t> counts, DType dtype,
                        ReduceOp op = ReduceOp::sum);
  [[nodiscard]] Work start_reduce_scatter_v(const void* send, void* recv, std::span<const std::size_t> counts, DType dtype,
                                            ReduceOp op = ReduceOp::sum);

  /// Fills recv[size()*count]: slice r is rank r's send[count]. send may be this rank's slice of recv.
  void all_gather(const void* send, void* recv, std::size_t count, DType dtype);
  [[nodiscard]] Work start_all_gather(const void* send, void* recv, std::size_t count, DType dtype);
  /// Slice r has counts[r] elements; `counts` is the same on all ranks.
  void all_gather_v(const void* send, void* recv, std::span<const std::size_t> counts, DType dtype);
  [[nodiscard]] Work start_all_gather_v(const void* send, void* recv, std::span<const std::size_t> counts, DType dtype);

  /// Sends slice r of `send` to rank r; slice r of `recv` comes from rank r. The buffers must not overlap.
  void all_to_all(const void* send, void* recv, std::size_t count, DType dtype);
  /// send_counts[r] of this rank equals recv_counts[this rank] of rank r.
  void all_to_all_v(const void* send, std::span<const std::size_t> send_counts, void* recv,
                    std::span<const std::size_t> recv_counts, DType dtype);
  [[nodiscard]] Work start_all_to_all_v(const void* send, std::span<const std::size_t> send_counts, void* recv,
                                        std::span<const std::size_t> recv_counts, DType dtype);

  /// Sends between two ranks; not collective. Messages of one pair and tag arrive in order; the tag is 0..32767. NCCL has no
  /// tags: its calls must match in order.
  void send(const void* data, std::size_t count, DType dtype, int peer, int tag = 0);
  void recv(void* data, std::size_t count, DType dtype, int peer, int tag = 0);
  [[nodiscard]] Work start_send(const void* data, std::size_t count, DType dtype, int peer, int tag = 0);
  [[nodiscard]] Work start_recv(void* data, std::size_t count, DType dtype, int peer, int tag = 0);

  /// Returns the group of the ranks with the same `color` (>= 0), ordered by `key` and then by rank. Collective over this group.
  std::unique_ptr<Communicator> split(int color, int key, std::string name);

  const Counters& counters() const { return counters_; }
  void reset_counters() { counters_ = {}; }

  /// In checked mode every collective first compares operation, types and counts over the ranks; on a mismatch all ranks throw
  /// the same Error. Enabled by default in debug builds and with QFT_CHECK_COLLECTIVES=1 in the environment.
  void set_checked(bool checked) { checked_ = checked; }
  bool checked() const { return checked_; }

 protected:
  using Counts = std::span<const std::size_t>;
  enum class Mode : std::uint8_t { blocking, started };
  Communicator(std::string name, int rank, int size);

 private:
  // With Mode::blocking a backend may finish the operation before it returns, if that is faster.
  virtual void do_barrier() = 0;
  virtual Work do_broadcast(void* data, std::size_t count, DType dtype, int root, Mode mode) = 0;
  virtual Work do_all_reduce(void* data, std::size_t count, DType dtype, ReduceOp op, Mode mode) = 0;
  virtual Work do_reduce_scatter(const void* send, void* recv, Counts counts, DType dtype, ReduceOp op) = 0;
  virtual Work do_all_gather(const void* send, void* recv, Counts counts, DType dtype, Mode mode) = 0;
  virtual Work do_all_to_all(const void* send, Counts send_counts, void* recv, Counts recv_counts, DType dtype) = 0;
  virtual Work do_send(const void* data, std::size_t count, DType dtype, int peer, int tag) = 0;
  virtual Work do_recv(void* data, std::size_t count, DType dtype, int peer, int tag) = 0;
  virtual std::unique_ptr<Communicator> do_split(int color, int key, std::string name) = 0;

  struct Call;
  Work broadcast(void* data, std::size_t count, DType dtype, int root, Mode mode);
  Work all_reduce(void* data, std::size_t count, DType dtype, ReduceOp op, Mode mode);
  Work all_gather(const void* send, void* recv, Counts counts, DType dtype, Mode mode);
  void begin(const Call& call);
  /// Calls `start` after begin(), and records the operation if a trace is recording.
  template <class Start>
  Work run(const Call& call, Start&& start);
  void compare_over_ranks(const Call& call);
  void compare_slices(Counts send_counts, Counts recv_counts);

  std::string name_;
  int rank_;
  int size_;
  bool checked_;
  std::uint64_t sequence_ = 0;  ///< collectives so far
  Counters counters_;
};

/// Returns the last operation that this process started on any communicator. Thread-safe.
LastCollective last_collective();

/// Makes a group of one rank, for host buffers. For device buffers see qft/comm/device_communicator.h.
std::unique_ptr<Communicator> make_self_communicator(std::string name = "self");

}  // namespace qft::comm
