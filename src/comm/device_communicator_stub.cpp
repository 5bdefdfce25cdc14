// CPU builds: host communicators only.
#include "qft/comm/device_communicator.h"
#include "qft/core/error.h"

namespace qft::comm {

std::unique_ptr<Communicator> make_device_communicator(Communicator& host, c10::Device device, std::string name) {
  if (!device.is_cpu()) {
    fail_config("communication on {} needs NCCL: build with -DQFT_CUDA=ON, or choose the device cpu", device.str());
  }
  return host.split(0, host.rank(), std::move(name));
}

}  // namespace qft::comm
