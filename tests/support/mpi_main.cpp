// main() of the MPI tests: opens a Session, runs every test on all ranks, prints any rank's failures with its rank, and gives all
// ranks the same exit code: 0, 1, or 77 if all ranks skipped all tests. A rank that failed while others are stuck in a collective
// aborts the job.
#include "qft/comm/exchange.h"
#include "qft/job/run_main.h"
#include "qft/job/watchdog.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "run_tests.h"
#include <gtest/gtest.h>
#include <mpi.h>

namespace {

constexpr std::chrono::seconds kPatience{15};

class RankListener : public testing::EmptyTestEventListener {
 public:
  RankListener(int rank, int size) : rank_(rank), size_(size) { MPI_Comm_dup(MPI_COMM_WORLD, &control_); }
  ~RankListener() override { MPI_Comm_free(&control_); }

  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed() || (rank_ == 0 && size_ == 1)) return;
    std::fprintf(stderr, "rank %d of %d: %s:%d: %s\n", rank_, size_, result.file_name() != nullptr ? result.file_name() : "?",
                 result.line_number(), result.message());
  }

  // All ranks meet after each test. A rank that failed waits only for a while.
  void OnTestEnd(const testing::TestInfo& info) override {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Ibarrier(control_, &request);
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    for (int done = 0; done == 0;) {
      MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      if (done == 0 && info.result()->Failed() && std::chrono::steady_clock::now() > deadline) {
        std::fprintf(stderr, "rank %d of %d: %s.%s failed on this rank, and the other ranks do not finish it\n", rank_, size_,
                     info.test_suite_name(), info.name());
        MPI_Abort(MPI_COMM_WORLD, 1);
      }
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

 private:
  int rank_;
  int size_;
  MPI_Comm control_ = MPI_COMM_NULL;
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const auto opened = qft::job::open_watched_session(argc, argv);
  qft::comm::Session& session = *opened;
  qft::job::Watchdog::current().set({});
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  if (session.rank() != 0) delete listeners.Release(listeners.default_result_printer());
  auto listener = std::make_unique<RankListener>(session.rank(), session.size());
  listeners.Append(listener.get());
  const int code = qft::test::run_all_tests();
  listeners.Release(listener.get());
  listener.reset();
  const auto any = [&](bool here) {
    return qft::comm::all_reduce_value(session.world(), here ? 1 : 0, qft::comm::ReduceOp::max) != 0;
  };
  if (any(code != 0 && code != qft::test::kSkipped)) return 1;
  return any(code == 0) ? 0 : qft::test::kSkipped;
}
