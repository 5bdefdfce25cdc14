#include "qft/train/stop_signal.h"

#include <csignal>

namespace qft::train {
namespace {

volatile std::sig_atomic_t g_signal = 0;

void remember(int signal) { g_signal = signal; }

}  // namespace

void catch_stop_signals() {
  struct sigaction action = {};
  action.sa_handler = &remember;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGUSR1, SIGTERM}) sigaction(signal, &action, nullptr);
}

int stop_requested() { return g_signal; }

void stop_before_training(comm::Communicator& comm) {
  std::int32_t asked = stop_requested() != 0 ? 1 : 0;
  comm.host().all_reduce(&asked, 1, DType::i32, comm::ReduceOp::max);
  if (asked != 0) throw Stopped("stopped on request before the first step: nothing was trained; submit the job again");
}

}  // namespace qft::train
