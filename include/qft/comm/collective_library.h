// The collectives of one kind of accelerator, in NCCL's terms: a back end's part "comm". NCCL's, or another's with its calls.
#pragma once

#include "qft/comm/communicator.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace qft::comm {

/// Calls as those of NCCL with the same names, in non-blocking mode: what has not come yet is Result::in_progress. Buffers are
/// memory of this rank's device; `stream` is the native one of the device's library. Calls on one group come from one thread at a
/// time; state(), abort() and last_error() from any.
class CollectiveLibrary {
 public:
  enum class Result : int { ok, in_progress, failed };
  using Group = void*;                     ///< ncclComm_t
  using Stream = void*;                    ///< cudaStream_t
  using UniqueId = std::array<char, 128>;  ///< ncclUniqueId

  virtual ~CollectiveLibrary() = default;

  /// "NCCL 2.28.9, '/usr/lib/libnccl.so.2'"
  virtual std::string version() const = 0;
  /// Why the library found at run time does not do; empty: it does.
  virtual std::string obstacle() const = 0;
  /// What the library says of the last failure on a group (null: of this process).
  virtual std::string last_error(Group group) const = 0;

  /// What shows its user more, for messages: "NCCL_DEBUG=INFO shows its own log".
  virtual std::string advice() const = 0;

  /// Device memory that a group of `ranks` takes for itself.
  virtual std::int64_t group_bytes(int ranks) const = 0;

  virtual Result unique_id(UniqueId& id) const = 0;
  virtual Result init(Group& group, int size, const UniqueId& id, int rank) const = 0;
  /// Of the group: in_progress while a call is under way, failed once an operation under way has failed.
  virtual Result state(Group group) const = 0;
  virtual Result finalize(Group group) const = 0;
  virtual void destroy(Group group) const = 0;
  /// Ends what is under way; the group is gone.
  virtual void abort(Group group) const = 0;

  virtual Result group_start() const = 0;
  virtual Result group_end() const = 0;

  /// From `send` on the root to `recv` on all.
  virtual Result broadcast(const void* send, void* recv, std::size_t bytes, int root, Group group, Stream stream) const = 0;
  /// In place.
  virtual Result all_reduce(void* data, std::size_t count, DType dtype, ReduceOp op, Group group, Stream stream) const = 0;
  virtual Result reduce(const void* send, void* recv, std::size_t count, DType dtype, ReduceOp op, int root, Group group,
                        Stream stream) const = 0;
  virtual Result reduce_scatter(const void* send, void* recv, std::size_t count, DType dtype, ReduceOp op, Group group,
                                Stream stream) const = 0;
  virtual Result all_gather(const void* send, void* recv, std::size_t bytes, Group group, Stream stream) const = 0;
  virtual Result send(const void* data, std::size_t bytes, int peer, Group group, Stream stream) const = 0;
  virtual Result recv(void* data, std::size_t bytes, int peer, Group group, Stream stream) const = 0;
};

}  // namespace qft::comm
