// A group of one rank: every operation is at most a copy.
#include "qft/comm/communicator.h"
#include "qft/comm/device_communicator.h"
#include "qft/device/memory.h"

namespace qft::comm {

namespace {

class SelfCommunicator final : public Communicator {
 public:
  SelfCommunicator(std::string name, c10::Device device) : Communicator(std::move(name), 0, 1), device_(device) {
    if (!device.is_cpu()) host_ = std::make_unique<SelfCommunicator>(this->name(), c10::kCPU);
  }

  std::string_view backend() const override { return "self"; }
  Communicator& host() override { return host_ ? *host_ : static_cast<Communicator&>(*this); }

 private:
  void do_barrier() override {}
  Work do_broadcast(void*, std::size_t, DType, int, Mode) override { return {}; }
  Work do_all_reduce(void*, std::size_t, DType, ReduceOp, Mode) override { return {}; }
  Work do_reduce_scatter(const void* send, void* recv, Counts counts, DType dtype, ReduceOp) override {
    return copy(send, recv, counts[0], dtype);
  }
  Work do_all_gather(const void* send, void* recv, Counts counts, DType dtype, Mode) override {
    return copy(send, recv, counts[0], dtype);
  }
  Work do_all_to_all(const void* send, Counts counts, void* recv, Counts, DType dtype) override {
    return copy(send, recv, counts[0], dtype);
  }
  // The base class rejects every peer in a group of one.
  Work do_send(const void*, std::size_t, DType, int, int) override { return {}; }
  Work do_recv(void*, std::size_t, DType, int, int) override { return {}; }
  std::unique_ptr<Communicator> do_split(int, int, std::string name) override {
    return make_self_communicator(std::move(name), device_);
  }

  Work copy(const void* send, void* recv, std::size_t count, DType dtype) {
    if (count > 0 && send != recv) device::copy_bytes(recv, send, count * size_of(dtype), device_);
    return {};
  }

  c10::Device device_;
  std::unique_ptr<Communicator> host_;
};

}  // namespace

std::unique_ptr<Communicator> make_self_communicator(std::string name) {
  return make_self_communicator(std::move(name), c10::kCPU);
}

std::unique_ptr<Communicator> make_self_communicator(std::string name, c10::Device device) {
  return std::make_unique<SelfCommunicator>(std::move(name), device);
}

}  // namespace qft::comm
