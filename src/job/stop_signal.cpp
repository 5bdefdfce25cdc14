#include "qft/job/stop_signal.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string_view>
#include <unistd.h>

namespace qft::job {
namespace {

constexpr std::string_view kInterrupted =
    "\nCtrl-C: the run ends at the next safe point with a checkpoint (exit code 75); Ctrl-C again ends it at once\n";
constexpr std::string_view kTerminated =
    "SIGTERM: the run ends at the next safe point with a checkpoint. Where it comes from Open MPI's mpirun (its own SIGTERM, or "
    "Ctrl-C) that is about to kill its ranks: start with 'qft-run mpirun ...', or send mpirun SIGUSR1, to keep the last steps\n";

volatile std::sig_atomic_t g_signal = 0;
bool g_speaks = false;  ///< one rank of a job

void say(std::string_view text) {
  if (g_speaks && write(STDERR_FILENO, text.data(), text.size()) < 0) return;
}

void remember(int signal) {
  const int before = errno;
  if (signal == SIGINT && g_signal == SIGINT) {
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);
  }
  g_signal = signal;
  if (signal == SIGINT) say(kInterrupted);
  if (signal == SIGTERM) say(kTerminated);
  errno = before;
}

}  // namespace

void catch_stop_signals() {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  g_speaks = rank == nullptr || std::string_view(rank) == "0";
  struct sigaction action = {};
  action.sa_handler = &remember;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGUSR1, SIGTERM}) sigaction(signal, &action, nullptr);
  struct sigaction interrupt = {};
  sigaction(SIGINT, nullptr, &interrupt);
  if (interrupt.sa_handler != SIG_IGN) sigaction(SIGINT, &action, nullptr);  // nohup and scripts may have it ignored
}

int stop_requested() {
  return g_signal;
}

void stop_before_training(comm::Communicator& comm, const std::function<void()>& leave) {
  std::int32_t asked = stop_requested() != 0 ? 1 : 0;
  comm.host().all_reduce(&asked, 1, DType::i32, comm::ReduceOp::max);
  if (asked == 0) return;
  if (leave) leave();
  throw Stopped(kNothingTrained);
}

}  // namespace qft::job
