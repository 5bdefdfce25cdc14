#include "qft/comm/bandwidth.h"
#include "qft/device/memory.h"
#include "qft/device/stream.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace qft::comm {

namespace {

// Past the small-message path, and no multiple of anything.
constexpr std::size_t kCount = 30011;

// Whole numbers, so that sums are exact in fp32: rank r's element i.
float value_of(std::size_t rank, std::size_t i) {
  return static_cast<float>(rank * 7 + i % 1001);
}

class Trial {
 public:
  Trial(Communicator& comm, c10::Device device, std::vector<std::string>& wrong)
      : comm_(comm),
        device_(device),
        wrong_(wrong),
        ranks_(static_cast<std::size_t>(comm.size())),
        rank_(static_cast<std::size_t>(comm.rank())) {}

  // Runs `call` on a send buffer of this rank's values and compares what it leaves in `result` elements of
  // the receive buffer with `expected`.
  void run(OpKind kind, std::size_t send, std::size_t result, const std::function<Work(void*, void*)>& call,
           const std::function<float(std::size_t)>& expected) {
    std::vector<float> host(std::max(send, result));
    for (std::size_t i = 0; i < send; ++i) host[i] = value_of(rank_, i);
    const device::DeviceBuffer in(host.size() * sizeof(float), device_);
    const device::DeviceBuffer out(host.size() * sizeof(float), device_);
    device::copy_bytes(in.data(), host.data(), host.size() * sizeof(float), device_);
    call(in.data(), out.data()).wait_host();
    device::copy_bytes(host.data(), out.data(), result * sizeof(float), device_);
    device::Stream::current(device_).synchronize();
    for (std::size_t i = 0; i < result; ++i) {
      if (host[i] == expected(i)) continue;
      wrong_.push_back(
          fmt::format("{} gives {} instead of {} at element {} of {}", name_of(kind), host[i], expected(i), i, result));
      return;
    }
  }

  void run_all() {
    const auto total = kCount * ranks_;
    const auto sum = [this](std::size_t i) {
      float s = 0;
      for (std::size_t r = 0; r < ranks_; ++r) s += value_of(r, i);
      return s;
    };
    const auto copied = [this](void* in, void* out, std::size_t count) {
      device::copy_bytes(out, in, count * sizeof(float), device_);
      return out;
    };
    run(
        OpKind::all_reduce, kCount, kCount,
        [&](void* in, void* out) { return comm_.start_all_reduce(copied(in, out, kCount), kCount, DType::f32); }, sum);
    run(
        OpKind::broadcast, kCount, kCount,
        [&](void* in, void* out) { return comm_.start_broadcast(copied(in, out, kCount), kCount, DType::f32, comm_.size() - 1); },
        [&](std::size_t i) { return value_of(ranks_ - 1, i); });
    run(
        OpKind::all_gather, kCount, total,
        [&](void* in, void* out) { return comm_.start_all_gather(in, out, kCount, DType::f32); },
        [](std::size_t i) { return value_of(i / kCount, i % kCount); });
    run(
        OpKind::reduce_scatter, total, kCount,
        [&](void* in, void* out) { return comm_.start_reduce_scatter(in, out, kCount, DType::f32); },
        [&](std::size_t i) { return sum(rank_ * kCount + i); });
    const std::vector<std::size_t> counts(ranks_, kCount);
    run(
        OpKind::all_to_all, total, total,
        [&](void* in, void* out) { return comm_.start_all_to_all_v(in, counts, out, counts, DType::f32); },
        [&](std::size_t i) { return value_of(i / kCount, rank_ * kCount + i % kCount); });
  }

 private:
  Communicator& comm_;
  c10::Device device_;
  std::vector<std::string>& wrong_;
  std::size_t ranks_;
  std::size_t rank_;
};

}  // namespace

std::vector<std::string> verify_collectives(Communicator& comm, c10::Device device) {
  std::vector<std::string> wrong;
  Trial(comm, device, wrong).run_all();
  return wrong;
}

}  // namespace qft::comm
