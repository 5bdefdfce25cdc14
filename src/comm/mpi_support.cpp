#include "mpi_support.h"

#include "qft/core/clock.h"
#include "qft/core/error.h"
#include "qft/core/trace.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "backoff.h"

namespace qft::comm {

namespace {

std::atomic<bool> abandoned{false};
std::atomic<std::uint64_t> completed{0};

}  // namespace

bool operations_abandoned() {
  return abandoned;
}

void mpi_check(int code, std::string_view what) {
  if (code == MPI_SUCCESS) [[likely]]
    return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail("MPI: {} failed: {}", what, std::string_view(text, static_cast<std::size_t>(length)));
}

MPI_Datatype mpi_type(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return MPI_DOUBLE;
    case DType::f32:
      return MPI_FLOAT;
    case DType::f16:
    case DType::bf16:
    case DType::i16:
      return MPI_INT16_T;
    case DType::i64:
      return MPI_INT64_T;
    case DType::i32:
      return MPI_INT32_T;
    case DType::i8:
      return MPI_INT8_T;
    case DType::u8:
    case DType::boolean:
      return MPI_UINT8_T;
  }
  fail("no MPI type for dtype {}", static_cast<int>(dtype));
}

MPI_Op mpi_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return MPI_SUM;
    case ReduceOp::prod:
      return MPI_PROD;
    case ReduceOp::max:
      return MPI_MAX;
    case ReduceOp::min:
      return MPI_MIN;
  }
  fail("no MPI operation for reduction {}", static_cast<int>(op));
}

void post_send(const void* data, std::size_t bytes, int peer, int tag, MPI_Comm comm, std::vector<MPI_Request>& requests) {
  for (std::size_t done = 0; done < bytes; done += kMaxMessageBytes) {
    const auto piece = static_cast<int>(std::min(kMaxMessageBytes, bytes - done));
    requests.push_back(MPI_REQUEST_NULL);
    mpi_check(MPI_Isend(static_cast<const char*>(data) + done, piece, MPI_BYTE, peer, tag, comm, &requests.back()), "MPI_Isend");
  }
}

void post_recv(void* data, std::size_t bytes, int peer, int tag, MPI_Comm comm, std::vector<MPI_Request>& requests) {
  for (std::size_t done = 0; done < bytes; done += kMaxMessageBytes) {
    const auto piece = static_cast<int>(std::min(kMaxMessageBytes, bytes - done));
    requests.push_back(MPI_REQUEST_NULL);
    mpi_check(MPI_Irecv(static_cast<char*>(data) + done, piece, MPI_BYTE, peer, tag, comm, &requests.back()), "MPI_Irecv");
  }
}

bool test_all(std::vector<MPI_Request>& requests, std::string_view what) {
  if (requests.empty()) return true;
  int done = 0;
  mpi_check(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE), what);
  if (done == 0) return false;
  requests.clear();
  completed.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void test_some(std::vector<MPI_Request>& requests, std::vector<int>& indices, std::string_view what) {
  int done = 0;
  indices.resize(requests.size());
  mpi_check(MPI_Testsome(static_cast<int>(requests.size()), requests.data(), &done, indices.data(), MPI_STATUSES_IGNORE), what);
  if (done != MPI_UNDEFINED && done > 0) completed.fetch_add(1, std::memory_order_relaxed);
}

std::uint64_t completions() noexcept {
  return completed.load(std::memory_order_relaxed);
}

bool MpiWork::step() {
  if (!done_) {
    try {
      done_ = advance();
    } catch (...) {
      failure_ = std::current_exception();
      done_ = true;
    }
    if (done_ && trace::recording()) completed_at_ = steady_seconds();
  }
  return done_;
}

bool MpiWork::test() {
  const std::lock_guard lock(mutex_);
  if (!step()) return false;
  if (failure_) std::rethrow_exception(failure_);
  return true;
}

void MpiWork::wait() {
  prioritize();
  wait_until([this] { return test(); });
}

void MpiWork::abandon() noexcept {
  prioritize();
  // One deadline for all operations that the unwinding stack holds.
  static const auto deadline = std::chrono::steady_clock::now() + kFinalWait;
  while (!operations_abandoned()) {
    {
      const std::lock_guard lock(mutex_);
      if (step()) return;
    }
    if (std::chrono::steady_clock::now() > deadline) abandoned = true;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  const std::lock_guard lock(mutex_);
  done_ = true;
}

bool MpiWork::progress() noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock.owns_lock() && step();
}

bool RequestWork::advance() {
  if (!test_all(requests_, what_)) return false;
  if (finish_) finish_();
  return true;
}

}  // namespace qft::comm
