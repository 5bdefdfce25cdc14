#include "qft/job/stop_signal.h"

#include "qft/core/program.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <string_view>
#include <unistd.h>

#include "ending.h"

namespace qft::job {
namespace {

constexpr std::string_view kInterrupted =
    "\nCtrl-C: the run ends at the next safe point with a checkpoint (exit code 75); Ctrl-C again ends it at once\n";
constexpr std::string_view kTerminated =
    "SIGTERM: the run saves a checkpoint at the next safe point and ends. A plain mpirun that receives SIGTERM or Ctrl-C kills "
    "its ranks before that: to keep the last steps start with 'qft-run mpirun ...', or send SIGUSR1 to mpirun\n";

constexpr std::string_view kInterruptedEarly =
    "\nCtrl-C: this run has not trained yet, so it ends without a checkpoint (exit code 75); Ctrl-C again ends it at once\n";
constexpr std::string_view kTerminatedEarly = "SIGTERM: this run has not trained yet, so it ends without a checkpoint\n";

/// A run without anything to save ends this long after a request at the latest, even if it hangs.
constexpr unsigned kStopTimeoutSeconds = 10;

volatile std::sig_atomic_t g_signal = 0;
volatile std::sig_atomic_t g_trains = 0;
volatile std::sig_atomic_t g_ends = 0;
bool g_prints = false;  ///< only one rank of a job prints

void say(std::string_view text) {
  if (g_prints && write(STDERR_FILENO, text.data(), text.size()) < 0) return;
}

void end_before_training(int) {
  if (g_trains != 0) return;
  say(kNothingTrained);
  say("\n");
  _exit(kExitRequeue);
}

void remember(int signal) {
  const int before = errno;
  if (signal == SIGINT && g_signal == SIGINT) {
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);
  }
  // mpirun and SLURM both send SIGTERM: a second one is the same request.
  const bool again = g_signal == signal || g_ends != 0, early = g_trains == 0;
  g_signal = signal;
  if (!again && early) alarm(kStopTimeoutSeconds);
  if (!again && signal == SIGINT) say(early ? kInterruptedEarly : kInterrupted);
  if (!again && signal == SIGTERM) say(early ? kTerminatedEarly : kTerminated);
  errno = before;
}

/// Leaves ignored signals alone: nohup and scripts rely on that.
void catch_unless_ignored(int signal, const struct sigaction& action) {
  struct sigaction before = {};
  sigaction(signal, nullptr, &before);
  if (before.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);
}

constexpr double kLeastMargin = 60.0;

}  // namespace

void catch_stop_signals() {
  g_prints = is_first_process();
  struct sigaction action = {};
  action.sa_handler = &remember;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGUSR1, SIGUSR2, SIGTERM, SIGXCPU}) sigaction(signal, &action, nullptr);
  for (const int signal : {SIGINT, SIGHUP}) catch_unless_ignored(signal, action);
  action.sa_handler = &end_before_training;
  sigaction(SIGALRM, &action, nullptr);
}

void training_has_begun() {
  g_trains = 1;
  alarm(0);
}

void training_has_ended() {
  g_trains = 0;
  if (g_signal != 0) alarm(kStopTimeoutSeconds);
}

void expect_end() {
  g_ends = 1;
  alarm(0);  // an error keeps its exit code
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

TimeLimit::TimeLimit(double max_hours, std::optional<double> job_end, double now) : job_end_(job_end) {
  if (max_hours > 0) stop_at_ = now + 3600.0 * max_hours;
}

void TimeLimit::observe_step(double seconds) {
  slowest_step_ = std::max(slowest_step_, seconds);
}
void TimeLimit::observe_save(double seconds) {
  slowest_save_ = std::max(slowest_save_, seconds);
}

double TimeLimit::margin() const {
  return std::max(kLeastMargin, 3.0 * (slowest_step_ + slowest_save_));
}

bool TimeLimit::reached(double now) const {
  return (stop_at_ && now >= *stop_at_) || (job_end_ && now >= *job_end_ - margin());
}

}  // namespace qft::job
