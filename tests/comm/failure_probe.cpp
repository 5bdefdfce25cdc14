// Fails in the way its argument names; failure_test starts it under mpirun and looks at what becomes of the
// job.
#include "qft/comm/exchange.h"
#include "qft/comm/session.h"
#include "qft/core/error.h"

#include <new>
#include <stdexcept>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  using namespace qft;
  return comm::run_main(argc, argv, [](comm::Session& session, std::span<const std::string> arguments) {
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
      if (last) {
        std::vector<float> data(1 << 24);
        const auto work = world.start_all_reduce(data.data(), data.size(), DType::f32);
        fail("alone");
      }
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
