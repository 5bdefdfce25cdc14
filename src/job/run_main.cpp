#include "qft/job/run_main.h"

#include "qft/comm/work.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/core/thread.h"
#include "qft/job/watchdog.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "ending.h"
#include <fmt/format.h>
#include <mpi.h>

namespace qft::job {
namespace {

constexpr auto kStartTimeout = std::chrono::minutes(1);

/// The outcome of one rank.
struct Outcome {
  int exit_code = 0;
  std::string error;  ///< empty: no error
};

/// How long a failed rank waits for the other ranks' reports before it ends the job.
constexpr std::chrono::milliseconds kGrace{3000};

using Clock = std::chrono::steady_clock;
constexpr int kReportTag = 1;
constexpr int kVerdictTag = 2;
constexpr std::chrono::microseconds kPoll{500};
// Rank 0 gets a head start, so that one rank prints for all failed ranks.
constexpr std::chrono::milliseconds kRankZeroFirst{1000};

void print_errors(const std::vector<std::pair<int, Outcome>>& failures, int size) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (const auto& [rank, outcome] : failures) {
    auto known = std::find_if(groups.begin(), groups.end(), [&error = outcome.error](const auto& g) { return g.first == error; });
    if (known == groups.end()) known = groups.insert(groups.end(), {outcome.error, {}});
    known->second.push_back(rank);
  }
  for (auto& [text, ranks] : groups) {
    std::sort(ranks.begin(), ranks.end());
    const bool everywhere = ranks.size() == static_cast<std::size_t>(size);
    const auto where = everywhere ? "" : fmt::format(" on rank{} {}", ranks.size() > 1 ? "s" : "", comm::format_ranks(ranks));
    const auto line = fmt::format("error{}: {}\n", where, text);
    std::fputs(line.c_str(), stderr);
  }
  std::fflush(stderr);
}

[[noreturn]] void end_job(const std::vector<std::pair<int, Outcome>>& failures, int size, MPI_Comm control) {
  print_errors(failures, size);
  const auto worst =
      std::min_element(failures.begin(), failures.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  MPI_Abort(control, worst->second.exit_code);
  std::_Exit(worst->second.exit_code);
}

// A failure outranks a request to be resubmitted; that outranks success.
int worse(int a, int b) {
  const auto weight = [](int code) { return code == kExitOk ? 0 : code == kExitRequeue ? 1 : 2; };
  return weight(b) > weight(a) ? b : a;
}

int collect(const Outcome& own, MPI_Comm control, int size) {
  std::vector<std::pair<int, Outcome>> failures;
  std::optional<Clock::time_point> deadline;
  int code = kExitOk;
  const auto take = [&](int rank, Outcome outcome) {
    code = worse(code, outcome.exit_code);
    if (outcome.error.empty()) return;
    if (!deadline) deadline = Clock::now() + kGrace;
    failures.emplace_back(rank, std::move(outcome));
  };
  take(0, own);
  for (int missing = size - 1; missing > 0;) {
    int ready = 0;
    MPI_Status status;
    MPI_Iprobe(MPI_ANY_SOURCE, kReportTag, control, &ready, &status);
    if (ready != 0) {
      int length = 0;
      MPI_Get_count(&status, MPI_CHAR, &length);
      std::string report(static_cast<std::size_t>(length), '\0');
      MPI_Recv(report.data(), length, MPI_CHAR, status.MPI_SOURCE, kReportTag, control, MPI_STATUS_IGNORE);
      const auto end = report.find(' ');
      take(status.MPI_SOURCE, {std::atoi(report.c_str()), report.substr(end + 1)});
      --missing;
    } else {
      if (deadline && Clock::now() > *deadline) end_job(failures, size, control);
      std::this_thread::sleep_for(kPoll);
    }
  }
  print_errors(failures, size);
  std::vector<MPI_Request> requests(static_cast<std::size_t>(size - 1), MPI_REQUEST_NULL);
  for (int r = 1; r < size; ++r)
    MPI_Isend(&code, 1, MPI_INT, r, kVerdictTag, control, &requests[static_cast<std::size_t>(r - 1)]);
  MPI_Waitall(size - 1, requests.data(), MPI_STATUSES_IGNORE);
  return code;
}

/// Returns the job's exit code on all ranks, once all ranks have called this. Prints each distinct error once, with its ranks. If
/// a rank failed and others do not arrive within kGrace, prints the known errors and calls MPI_Abort.
int agree_exit_code(const Outcome& outcome, MPI_Comm control) {
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(control, &rank);
  MPI_Comm_size(control, &size);
  if (comm::operations_abandoned()) end_job({{rank, outcome}}, size, control);
  if (rank == 0) return collect(outcome, control, size);

  const auto report = fmt::format("{} {}", outcome.exit_code, outcome.error);
  MPI_Request sent = MPI_REQUEST_NULL;
  MPI_Request answered = MPI_REQUEST_NULL;
  int code = kExitFailed;
  MPI_Isend(report.data(), static_cast<int>(report.size()), MPI_CHAR, 0, kReportTag, control, &sent);
  MPI_Irecv(&code, 1, MPI_INT, 0, kVerdictTag, control, &answered);
  const auto deadline = Clock::now() + kGrace + kRankZeroFirst;
  for (int done = 0; done == 0;) {
    MPI_Test(&answered, &done, MPI_STATUS_IGNORE);
    if (done != 0) break;
    if (!outcome.error.empty() && Clock::now() > deadline) end_job({{rank, outcome}}, size, control);
    std::this_thread::sleep_for(kPoll);
  }
  MPI_Wait(&sent, MPI_STATUS_IGNORE);
  return code;
}

// LibTorch appends a native backtrace to its messages.
std::string without_backtrace(std::string text) {
  const auto end = text.find("\nException raised from ");
  return end == std::string::npos ? text : text.substr(0, end);
}

Outcome run_guarded(const std::function<int()>& body) {
  try {
    return {body(), ""};
  } catch (const Error& e) {
    return {e.exit_code(), *e.what() != '\0' ? e.what() : "an error without a message"};
  } catch (const std::bad_alloc&) {
    return {kExitFailed, "out of host memory: lower per_device_train_batch_size or cutoff_len, or use more ranks"};
  } catch (const std::exception& e) {
    return {kExitFailed, without_backtrace(e.what())};
  } catch (...) {
    return {kExitFailed, "an exception of unknown type"};
  }
}

// MPI_Finalize waits for all ranks: after a failure it must not keep the job alive.
void finalize_at_most(std::chrono::seconds limit, int exit_code) {
  try {
    start_thread([limit, exit_code] {
      std::this_thread::sleep_for(limit);
      std::_Exit(exit_code);
    }).detach();
  } catch (const Error&) {
    std::_Exit(exit_code);  // no thread could be started
  }
}

}  // namespace

std::unique_ptr<comm::Session> open_watched_session(int& argc, char**& argv) {
  return std::make_unique<comm::Session>(argc, argv, [](comm::Communicator& world, const std::string& host) {
    return std::make_shared<Watchdog>(world, host, WatchdogOptions{.timeout = kStartTimeout});
  });
}

int run_part(const std::function<int()>& part) {
  MPI_Comm control = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &control);
  const auto outcome = run_guarded(part);
  if (!outcome.error.empty()) log::write_to_file(log::Severity::error, outcome.error);
  const int code = agree_exit_code(outcome, control);
  MPI_Comm_free(&control);
  return code;
}

int run_main(int argc, char** argv, const std::function<int(comm::Session&, std::span<const std::string>)>& body) {
  std::unique_ptr<comm::Session> session;
  const auto opened = run_guarded([&] {
    session = open_watched_session(argc, argv);
    return 0;
  });
  if (!session) {
    std::fputs(fmt::format("error: {}\n", opened.error).c_str(), stderr);
    return opened.exit_code;
  }
  MPI_Comm control = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &control);
  Watchdog::current().set({});
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto outcome = run_guarded([&] { return body(*session, arguments); });
  expect_end();
  if (!outcome.error.empty()) log::write_to_file(log::Severity::error, outcome.error);
  const int code = agree_exit_code(outcome, control);
  MPI_Comm_free(&control);
  if (code != kExitOk) finalize_at_most(std::chrono::seconds(10), code);
  session.reset();
  return code;
}

}  // namespace qft::job
