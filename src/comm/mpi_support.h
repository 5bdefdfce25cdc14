// MPI for C++: errors as exceptions, types, and operations that a progress thread drives.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/comm/work.h"

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <mpi.h>

namespace qft::comm {

/// Throws Error with MPI's own text unless `code` is MPI_SUCCESS.
void mpi_check(int code, std::string_view what);

/// Returns the MPI type of one element. MPI cannot reduce f16 and bf16: they travel as 16-bit integers.
MPI_Datatype mpi_type(DType dtype);
MPI_Op mpi_op(ReduceOp op);

/// Maximum bytes of one message: MPI 3 counts in int, and splitting lets neighbours overlap.
inline constexpr std::size_t kMaxMessageBytes = std::size_t{1} << 28;

/// Posts a message of any length in pieces; appends the requests.
void post_send(const void* data, std::size_t bytes, int peer, int tag, MPI_Comm comm, std::vector<MPI_Request>& requests);
void post_recv(void* data, std::size_t bytes, int peer, int tag, MPI_Comm comm, std::vector<MPI_Request>& requests);

/// Returns true once all requests are complete; then clears them.
bool test_all(std::vector<MPI_Request>& requests, std::string_view what);

/// Tests all requests once; completed ones become MPI_REQUEST_NULL. indices: a buffer reused between calls.
void test_some(std::vector<MPI_Request>& requests, std::vector<int>& indices, std::string_view what);

/// Returns a counter that grows whenever test_all() or test_some() finds completed requests, on any thread.
std::uint64_t completions() noexcept;

/// An operation that advances in steps, driven by any thread that polls it.
class MpiWork : public WorkState {
 public:
  bool test() final;
  void wait() final;
  void abandon() noexcept final;
  /// For the progress thread: advances unless another thread does. Returns true once complete or failed.
  bool progress() noexcept;
  double completed_at() const final { return completed_at_; }

 protected:
  /// Performs one step without blocking; returns true once complete. Called under the lock, and never again after true or a
  /// throw.
  virtual bool advance() = 0;
  /// Notifies the operation that a thread now waits for it. Called without the lock.
  virtual void prioritize() noexcept {}

 private:
  bool step();
  std::mutex mutex_;
  bool done_ = false;
  double completed_at_ = 0.0;  ///< 0 unless a trace was recording
  std::exception_ptr failure_;
};

/// Waits for requests, then runs `finish` once.
class RequestWork final : public MpiWork {
 public:
  RequestWork(std::vector<MPI_Request> requests, std::string_view what, std::function<void()> finish = {})
      : requests_(std::move(requests)), what_(what), finish_(std::move(finish)) {}

 private:
  bool advance() override;
  std::vector<MPI_Request> requests_;
  std::string_view what_;
  std::function<void()> finish_;
};

/// Makes a communicator over a duplicate of `comm`, freed with the result; the self backend for one rank. Collective over `comm`.
std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm comm, std::string name);

}  // namespace qft::comm
