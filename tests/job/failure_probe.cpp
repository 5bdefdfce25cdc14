// Fails as its argument says. failure_test starts it under mpirun and checks how the job ends.
#include "qft/comm/exchange.h"
#include "qft/core/activity.h"
#include "qft/core/error.h"
#include "qft/job/run_main.h"
#include "qft/job/stop_signal.h"
#include "qft/job/watchdog.h"

#include <chrono>
#include <csignal>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

int main(int argc, char** argv) {
  using namespace qft;
  return job::run_main(argc, argv, [](comm::Session& session, std::span<const std::string> arguments) {
    const std::string way = arguments.empty() ? "" : arguments[0];
    auto& world = session.world();
    const bool last = session.rank() == session.size() - 1;
    if (way == "config") fail_config("key 'x' is not known");
    if (way == "runtime") fail("disk is full");
    if (way == "two texts") fail("cannot read part {}", session.rank() / 2);
    if (way == "memory") throw std::bad_alloc();
    if (way == "foreign") throw std::runtime_error("from elsewhere");
    if (way == "unknown") throw 42;
    if (way == "requeue") return static_cast<int>(kExitRequeue);
    if (way == "one returns 1") return last ? 1 : 0;
    if (way == "last, others in a collective" || way == "last, others done") {
      if (last) fail_config("only here");
      if (way == "last, others in a collective") world.barrier();
    }
    if (way == "first, others in a collective") {
      if (session.rank() == 0) fail("only here");
      world.barrier();
    }
    if (way == "with an operation under way") {
      std::vector<float> data(1 << 22);
      const auto work = world.start_all_reduce(data.data(), data.size(), DType::f32);
      if (last) fail("while data moves");
      world.barrier();
    }
    if (way == "with an operation that nobody else joins") {
      const auto other = world.split(0, session.rank(), "other");  // on 'world' the watchdog would notice first
      if (last) {
        std::vector<float> data(1 << 24);
        const auto work = other->start_all_reduce(data.data(), data.size(), DType::f32);
        fail("alone");
      }
      world.barrier();
    }
    if (way == "two collectives") {  // the last rank calls another kind
      job::Watchdog::current().set({std::chrono::seconds(2), std::chrono::milliseconds(200)});
      std::vector<float> data(100);
      world.barrier();
      last ? world.broadcast(data.data(), data.size(), DType::f32, session.rank()) : world.barrier();
      world.barrier();
    }
    if (way == "skips one") {
      job::Watchdog::current().set({std::chrono::seconds(2), std::chrono::milliseconds(200)});
      for (int i = 0; i < 10; ++i)
        if (!last || i != 5) world.barrier();
    }
    if (way == "last computes for ever" || way == "last is stopped" || way == "first is stopped") {
      job::Watchdog::current().set({std::chrono::seconds(2), std::chrono::milliseconds(200)});
      const activity::Phase phase("train");
      if (way == "first is stopped" && session.rank() == 0) std::raise(SIGSTOP);
      if (way == "last is stopped" && last) std::raise(SIGSTOP);
      while (way == "last computes for ever" && last) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      world.barrier();
    }
    if (way == "last does not come" || way == "first does not come") {
      const bool comes = way[0] == 'l' ? !last : session.rank() != 0;
      if (comes) const job::Watchdog watchdog(world, session.hostname(), {std::chrono::seconds(2)});
      std::this_thread::sleep_for(std::chrono::seconds(60));
    }
    if (way == "long work") {  // on the first rank, longer than the timeout, but with progress
      job::Watchdog::current().set({std::chrono::seconds(2), std::chrono::milliseconds(200)});
      for (int i = 0; i < 50 && session.rank() == 0; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        activity::tick();
      }
      world.barrier();
    }
    if (way == "last is slow" || way == "last is slow: stop") {
      job::Watchdog::current().set({std::chrono::seconds(20), std::chrono::milliseconds(50), way.ends_with("stop")});
      for (int step = 1; step <= 30; ++step) {
        std::this_thread::sleep_for(std::chrono::milliseconds(last ? 150 : 4));
        activity::step_done(step, last ? 0.150 : 0.004, 1.0);
        int ends = activity::end_reason().empty() ? 0 : 1;
        world.all_reduce(&ends, 1, DType::i32);
        if (ends > 0) break;
      }
      if (const auto reason = comm::broadcast_string(world, activity::end_reason()); !reason.empty()) fail("{}", reason);
    }
    if (way == "asked to stop at the start") {
      job::catch_stop_signals();
      std::raise(SIGTERM);
      return static_cast<int>(kExitRequeue);
    }
    if (way == "asked to stop after an error") {
      job::catch_stop_signals();
      std::thread([] {
        std::this_thread::sleep_for(std::chrono::seconds(1));
        kill(getpid(), SIGTERM);
      }).detach();
      if (session.rank() == 0) fail_config("only here");
      world.barrier();
    }
    if (way == "agreed") {
      comm::agreed(world, [&] {
        if (last) fail_config("cannot open 'y'");
      });
    }
    return 0;
  });
}
