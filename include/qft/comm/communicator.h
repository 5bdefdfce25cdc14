// Collectives and messages among a group of ranks: one checked, counted and traced front over MPI, NCCL or one rank.
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

/// Calls and bytes per kind of operation. Bytes are those this rank receives by the bandwidth-optimal
/// algorithm, with n ranks and S bytes of the whole buffer: all_reduce 2 S (n-1)/n; all_gather and
/// reduce_scatter S less this rank's slice; all_to_all the slices from others; broadcast S, 0 on the root;
/// recv S; send and barrier 0.
struct Counters {
  std::array<std::uint64_t, kOpKinds> calls{};
  std::array<std::uint64_t, kOpKinds> bytes{};
  std::uint64_t total_bytes() const;
};

/// The operation that this process started last, for watchdogs and error reports.
struct LastCollective {
  std::uint64_t number = 0;  ///< among the collectives on its communicator: 1, 2, ...; 0: none yet
  std::string communicator;  ///< "shard"
  std::string call;          ///< "all_reduce(sum, F32, 1024)"
};

/// Collective unless said otherwise: all ranks of the group call the same operations in the same order with
/// matching arguments. Calls come from one thread at a time. Counts are elements and may be 0 or exceed 2^31.
/// Host backends take host pointers, NCCL takes device pointers on its device. start_* return at once; what
/// they were given must stay untouched until the Work is complete. Bad arguments throw Error before anything
/// is sent. Sums of f16 and bf16 are accumulated in fp32 and rounded once (MPI); NCCL rounds at each hop.
/// Results of a reduction are the same bits on every rank and in every run on the same number of ranks.
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
  /// The same ranks for host memory: *this, except for NCCL.
  virtual Communicator& host() { return *this; }

  void barrier();

  /// `data`[count] of `root` to all.
  void broadcast(void* data, std::size_t count, DType dtype, int root);
  [[nodiscard]] Work start_broadcast(void* data, std::size_t count, DType dtype, int root);

  /// In place: data[count] becomes the reduction over all ranks. boolean takes max (or) and min (and) only.
  void all_reduce(void* data, std::size_t count, DType dtype, ReduceOp op = ReduceOp::sum);
  [[nodiscard]] Work start_all_reduce(void* data, std::size_t count, DType dtype, ReduceOp op = ReduceOp::sum);

  /// send[size()*count] is reduced; rank r keeps slice r in recv[count]. recv may be that slice of send.
  void reduce_scatter(const void* send, void* recv, std::size_t count, DType dtype, ReduceOp op = ReduceOp::sum);
  [[nodiscard]] Work start_reduce_scatter(const void* send, void* recv, std::size_t count, DType dtype,
                                          ReduceOp op = ReduceOp::sum);
  /// Slice r has counts[r] elements; counts alike on all ranks.
  void reduce_scatter_v(const void* send, void* recv, std::span<const std::size_t> counts, DType dtype,
                        ReduceOp op = ReduceOp::sum);
  [[nodiscard]] Work start_reduce_scatter_v(const void* send, void* recv, std::span<const std::size_t> counts, DType dtype,
                                            ReduceOp op = ReduceOp::sum);

  /// recv[size()*count]: slice r is rank r's send[count]. send may be this rank's slice of recv.
  void all_gather(const void* send, void* recv, std::size_t count, DType dtype);
  [[nodiscard]] Work start_all_gather(const void* send, void* recv, std::size_t count, DType dtype);
  /// Slice r has counts[r] elements; counts alike on all ranks.
  void all_gather_v(const void* send, void* recv, std::span<const std::size_t> counts, DType dtype);
  [[nodiscard]] Work start_all_gather_v(const void* send, void* recv, std::span<const std::size_t> counts, DType dtype);

  /// send slice r goes to rank r; recv slice r comes from rank r. The buffers must not overlap.
  void all_to_all(const void* send, void* recv, std::size_t count, DType dtype);
  /// send_counts[r] of this rank equals recv_counts[this] of rank r.
  void all_to_all_v(const void* send, std::span<const std::size_t> send_counts, void* recv,
                    std::span<const std::size_t> recv_counts, DType dtype);
  [[nodiscard]] Work start_all_to_all_v(const void* send, std::span<const std::size_t> send_counts, void* recv,
                                        std::span<const std::size_t> recv_counts, DType dtype);

  /// Between two ranks, not collective. Messages of one pair and tag arrive in order; tag is 0..32767
  /// (NCCL has no tags: there the order of the calls must match).
  void send(const void* data, std::size_t count, DType dtype, int peer, int tag = 0);
  void recv(void* data, std::size_t count, DType dtype, int peer, int tag = 0);
  [[nodiscard]] Work start_send(const void* data, std::size_t count, DType dtype, int peer, int tag = 0);
  [[nodiscard]] Work start_recv(void* data, std::size_t count, DType dtype, int peer, int tag = 0);

  /// The ranks with the same `color` (>= 0), ordered by `key` and then by rank. Collective over this group.
  std::unique_ptr<Communicator> split(int color, int key, std::string name);

  const Counters& counters() const { return counters_; }
  void reset_counters() { counters_ = {}; }

  /// In checked mode every collective first compares operation, types and counts over the ranks and throws
  /// the same Error on all of them on a mismatch. Default: the environment's QFT_CHECK_COLLECTIVES=1, or a debug build.
  void set_checked(bool checked) { checked_ = checked; }
  bool checked() const { return checked_; }

 protected:
  using Counts = std::span<const std::size_t>;
  enum class Mode : std::uint8_t { blocking, started };
  Communicator(std::string name, int rank, int size);

 private:
  // With Mode::blocking a backend may finish the operation before it returns, where that is faster.
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

/// The last operation started by this process on any communicator. May be called from any thread.
LastCollective last_collective();

/// A group of one, for buffers of the host (of a device: qft/comm/device_communicator.h).
std::unique_ptr<Communicator> make_self_communicator(std::string name = "self");

}  // namespace qft::comm
