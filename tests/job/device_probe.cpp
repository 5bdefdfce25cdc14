// Hangs or fails on its ranks' simulated devices as its argument says. device_test starts it under mpirun.
#include "qft/comm/device_communicator.h"
#include "qft/comm/session.h"
#include "qft/core/activity.h"
#include "qft/core/error.h"
#include "qft/device/memory.h"
#include "qft/device/stream.h"
#include "qft/job/run_main.h"
#include "qft/job/watchdog.h"

#include <chrono>
#include <string>
#include <thread>

#include "sim/sim.h"

int main(int argc, char** argv) {
  using namespace qft;
  using namespace std::chrono_literals;
  return job::run_main(argc, argv, [](comm::Session& session, std::span<const std::string> arguments) {
    const std::string way = arguments.empty() ? "" : arguments[0];
    const bool last = session.rank() == session.size() - 1;
    const c10::Device device = comm::choose_device(session, "sim");
    const auto group = comm::make_device_communicator(session.world(), device, "devices");
    const device::DeviceBuffer data(4000, device);
    const auto reduce = [&] { group->start_all_reduce(data.data(), 1000, DType::f32).wait(); };
    const auto stream = device::Stream::current(device);
    reduce();
    stream.synchronize();
    job::Watchdog::current().set({way == "a failure, long timeout" ? 60s : 2s, 200ms});
    const activity::Phase phase("train");
    if (way == "last does not call" && last) std::this_thread::sleep_for(60s);
    if (way == "the last device is busy" && last)
      sim::enqueue_blocking(stream.torch(), "endless work", {}, [] { return sim::Progress::not_yet; });
    for (int i = 0; i < 3; ++i) reduce();  // hosts run ahead of the hanging call
    stream.synchronize();
    return 0;
  });
}
