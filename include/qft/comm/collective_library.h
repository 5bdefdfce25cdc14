// The collectives of one kind of accelerator, with NCCL's interface: the part "comm" of a back end. NCCL, or another library with
// the same calls.
#pragma once

#include "qft/comm/communicator.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace qft::comm {

/// The calls match NCCL's calls of the same names, in non-blocking mode: unfinished calls return Result::in_progress. Buffers are
/// memory of this rank's device; `stream` is the native stream of the device's library. Call a group from one thread at a time;
/// state(), abort() and last_error() may be called from any thread.
class CollectiveLibrary {
 public:
  enum class Result : int { ok, in_progress, failed };
  using Group = void*;                     ///< ncclComm_t
  using Stream = void*;                    ///< cudaStream_t
  using UniqueId = std::array<char, 128>;  ///< ncclUniqueId

  virtual ~CollectiveLibrary() = default;

  /// "NCCL 2.28.9, '/usr/lib/libnccl.so.2'"
  virtual std::string version() const = 0;
  /// Returns why the library found at run time cannot be used; empty if it can.
  virtual std::string obstacle() const = 0;
  /// Returns the library's text for the last failure in a group (null: in this process).
  virtual std::string last_error(Group group) const = 0;

  /// Returns advice for error messages: "NCCL_DEBUG=INFO shows its own log".
  virtual std::string advice() const = 0;

  /// Returns the device memory that a group of `ranks` ranks allocates.
  virtual std::int64_t group_bytes(int ranks) const = 0;

  virtual Result unique_id(UniqueId& id) const = 0;
  virtual Result init(Group& group, int size, const UniqueId& id, int rank) const = 0;
  /// Returns the group's state: in_progress during a call, failed once a started operation has failed.
  virtual Result state(Group group) const = 0;
  virtual Result finalize(Group group) const = 0;
  virtual void destroy(Group group) const = 0;
  /// Aborts all started operations and destroys the group.
  virtual void abort(Group group) const = 0;

  virtual Result group_start() const = 0;
  virtual Result group_end() const = 0;

  /// Copies `send` of the root to `recv` on all ranks.
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
