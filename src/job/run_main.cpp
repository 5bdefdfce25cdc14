#include "qft/job/run_main.h"

#include "qft/core/error.h"
#include "qft/job/watchdog.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "verdict.h"
#include <fmt/format.h>
#include <mpi.h>

namespace qft::job {

namespace {

constexpr auto kStartTimeout = std::chrono::minutes(1);

// LibTorch appends a native backtrace to its messages.
std::string without_backtrace(std::string text) {
  const auto end = text.find("\nException raised from ");
  return end == std::string::npos ? text : text.substr(0, end);
}

Outcome attempt(const std::function<int()>& body) {
  try {
    return {body(), ""};
  } catch (const Error& e) {
    return {e.exit_code(), *e.what() != '\0' ? e.what() : "an error without a message"};
  } catch (const std::bad_alloc&) {
    return {kExitFailed,
            "out of host memory: lower per_device_train_batch_size or cutoff_len, or use more ranks"};
  } catch (const std::exception& e) {
    return {kExitFailed, without_backtrace(e.what())};
  } catch (...) {
    return {kExitFailed, "an exception of unknown type"};
  }
}

// MPI_Finalize waits for all ranks: after a failure it must not be what keeps the job alive.
void finalize_at_most(std::chrono::seconds limit, int exit_code) {
  std::thread([limit, exit_code] {
    std::this_thread::sleep_for(limit);
    std::_Exit(exit_code);
  }).detach();
}

}  // namespace

std::unique_ptr<comm::Session> open_watched_session(int& argc, char**& argv) {
  return std::make_unique<comm::Session>(argc, argv, [](comm::Communicator& world, const std::string& host) {
    return std::make_shared<Watchdog>(world, host, WatchdogOptions{.timeout = kStartTimeout});
  });
}

int run_main(int argc, char** argv, const std::function<int(comm::Session&, std::span<const std::string>)>& body) {
  std::unique_ptr<comm::Session> session;
  const auto opened = attempt([&] {
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
  const auto outcome = attempt([&] { return body(*session, arguments); });
  const int code = settle(outcome, control);
  MPI_Comm_free(&control);
  if (code != kExitOk) finalize_at_most(std::chrono::seconds(10), code);
  session.reset();
  return code;
}

}  // namespace qft::job
