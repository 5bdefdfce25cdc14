// Checks copies between host and device, the order of streams, and memory statistics.
#include "qft/device/graph.h"
#include "qft/device/memory.h"
#include "qft/device/stream.h"
#include "qft/device/upload.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "runner.h"
#include "values.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

namespace qft::selftest {
namespace {

constexpr const char* kCopiesReport =
    "look for errors of the device in dmesg (Xid, ECC, PCIe) and leave this node out; if the failure stays, report this line";
constexpr Subject kPinned{"copies", "pinned memory", "offloading and checkpoints move wrong bytes", kCopiesReport};
constexpr Subject kPageable{"copies", "pageable memory", "weights and data reach the device damaged", kCopiesReport};
constexpr Subject kTypes{"copies", "conversions", "masters are rounded wrongly to the weights that compute", kCopiesReport};
constexpr Subject kStreams{"copies", "order of streams", "prefetched weights and offloaded values are read before they arrive",
                           "update the driver; if the failure stays, report this line with the output of qft --version"};
constexpr Subject kGraphs{"copies", "graphs", "cuda_graphs: true trains on old values",
                          "train without cuda_graphs; update the driver"};
constexpr Subject kMemory{
    "copies", "memory counted", "strategy: auto and micro-batch sizes are chosen by wrong numbers; runs end out of memory",
    "compare with nvidia-smi or free -b on the node named here; set strategy and offloading by hand meanwhile"};

std::vector<unsigned char> pattern(std::size_t bytes, unsigned seed) {
  std::vector<unsigned char> all(bytes);
  unsigned state = seed * 2654435761U + 1;
  for (unsigned char& b : all) b = static_cast<unsigned char>((state = state * 1664525U + 1013904223U) >> 24);
  return all;
}

/// Copies bytes to the device and back.
void round_trip(Runner& runner, Outcome& out, void* to_send, void* to_receive, std::size_t bytes) {
  const auto sent = pattern(bytes, static_cast<unsigned>(runner.session().rank()) + 1);
  std::memcpy(to_send, sent.data(), bytes);
  std::memset(to_receive, 0, bytes);
  const device::DeviceBuffer there(bytes, runner.device());
  device::copy_bytes(there.data(), to_send, bytes, runner.device());
  device::copy_bytes(to_receive, there.data(), bytes, runner.device());
  device::Stream::current(runner.device()).synchronize();
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < bytes; ++i) wrong += static_cast<const unsigned char*>(to_receive)[i] != sent[i];
  out.hold("the bytes", wrong == 0, fmt::format("{} of {} bytes come back changed", wrong, bytes));
}

void check_bytes(Runner& runner, std::size_t bytes) {
  runner.check(kPinned, fmt::format("{} bytes there and back", bytes), [&](Outcome& out) {
    const device::PinnedBuffer a(bytes, runner.device()), b(bytes, runner.device());
    out.hold("the kind of memory", a.pinned() == !runner.device().is_cpu(), "the memory is not pinned for the device");
    round_trip(runner, out, a.data(), b.data(), bytes);
  });
  runner.check(kPageable, fmt::format("{} bytes there and back", bytes), [&](Outcome& out) {
    std::vector<unsigned char> a(bytes), b(bytes);
    round_trip(runner, out, a.data(), b.data(), bytes);
  });
}

void check_conversion(Runner& runner, at::ScalarType type) {
  runner.check(kTypes, fmt::format("fp32 to {}", name_of(type)), [&](Outcome& out) {
    const at::Tensor host = Values(c10::kCPU, at::kFloat).normal({37, 1001}, 3.0).here;
    const at::Tensor there = host.to(runner.device()), turned = at::empty({1001, 37}, there.options().dtype(type));
    turned.copy_(there.t());
    const at::Tensor want = host.to(type), got = turned.t().to(c10::kCPU);
    out.hold("converted values", got.equal(want), "values are rounded differently than on the CPU");
    out.hold("their way back", there.to(c10::kCPU).equal(host), "values come back changed");
  });
}

void check_upload(Runner& runner) {
  runner.check(kPageable, "100003 token numbers", [&](Outcome& out) {
    const auto all = numbers(100003, 151936);
    const at::Tensor got = device::upload(all, runner.device()).to(c10::kCPU);
    out.hold("the numbers", std::equal(all.begin(), all.end(), got.const_data_ptr<std::int32_t>()), "numbers come back changed");
  });
}

/// A stream that waits for an event must see earlier work, but not work that the first stream queues after the second event.
void check_streams(Runner& runner) {
  const auto need_streams = [&] {
    if (runner.device().is_cpu()) Outcome::skip("on the CPU work is done when a call returns");
  };
  runner.check(kStreams, "an event holds another stream back", [&](Outcome& out) {
    need_streams();
    constexpr int kAdditions = 50;
    const auto current = device::Stream::current(runner.device()), side = device::Stream::make(runner.device());
    const at::Tensor x = at::zeros({4 << 20}, at::TensorOptions().device(runner.device())), y = at::empty_like(x);
    for (int round = 0; round < 4; ++round) {
      x.zero_();
      for (int i = 0; i < kAdditions; ++i) x.add_(1.0);
      device::Event added(runner.device()), copied(runner.device());
      added.record(current);
      side.wait(added);
      {
        const device::StreamGuard guard(side);
        y.copy_(x);
        copied.record(side);
      }
      current.wait(copied);
      x.fill_(-1.0);
      const double wrong = y.ne(kAdditions).sum().item<double>();
      out.hold("the copy", wrong == 0, fmt::format("{} of {} elements were copied too early or too late", wrong, x.numel()));
    }
  });
  runner.check(kStreams, "events tell time", [&](Outcome& out) {
    need_streams();
    const auto current = device::Stream::current(runner.device());
    device::Event first(runner.device(), true), last(runner.device(), true);
    const at::Tensor x = at::zeros({4 << 20}, at::TensorOptions().device(runner.device()));
    first.record(current);
    for (int i = 0; i < 10; ++i) x.add_(1.0);
    last.record(current);
    last.synchronize();
    const double ms = last.milliseconds_since(first);
    out.hold("the time", ms > 0 && ms < 60000, fmt::format("ten additions take {} ms", ms));
  });
}

void check_graphs(Runner& runner) {
  runner.check(kGraphs, "a replay reads the current values", [&](Outcome& out) {
    const device::GraphPool pool(runner.device());
    const at::Tensor x = at::zeros({1009}, at::TensorOptions().device(runner.device())), y = at::zeros_like(x);
    const auto work = [x, y] { y.copy_(x.mul(2.0)); };
    pool.warm_up(work);
    const auto graph = pool.capture(work);
    for (const double value : {1.0, 5.0}) {
      x.fill_(value);
      graph->replay();
      const double got = y.sum().item<double>() / 1009;
      out.hold("the result", got == 2 * value, fmt::format("twice {} is {}", value, got));
    }
  });
}

void check_memory(Runner& runner) {
  runner.check(kMemory, "64 MiB taken and given back", [&](Outcome& out) {
    constexpr std::int64_t kBytes = std::int64_t{64} << 20, kSlack = std::int64_t{24} << 20;
    const auto current = [&] { return device::memory_use(runner.device()).current; };
    device::release_unused();  // or the host would reuse freed memory unnoticed
    const std::int64_t before = current();
    at::Tensor taken = at::zeros({kBytes}, at::TensorOptions().device(runner.device()).dtype(at::kByte));
    taken.fill_(1);
    device::Stream::current(runner.device()).synchronize();
    const std::int64_t during = current() - before;
    out.hold("what is used", std::abs(during - kBytes) < kSlack,
             fmt::format("{} bytes more are used after {} were taken", during, kBytes));
    taken.reset();
    if (!runner.device().is_cpu())  // malloc may keep freed memory
      out.hold("the freed memory", std::abs(current() - before) < kSlack,
               fmt::format("{} bytes are still used", current() - before));
    const std::int64_t total = device::memory_use(runner.device()).total;
    const std::int64_t left = device::memory_left(runner.device(), runner.session().sharers_of(runner.device()));
    out.hold("the memory left", left > 0 && left <= total, fmt::format("{} bytes are left of {}", left, total));
  });
}

}  // namespace

void check_copies(Runner& runner) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{4099}, (std::size_t{8} << 20) + 13}) check_bytes(runner, bytes);
  check_upload(runner);
  for (const at::ScalarType type : runner.checked_types()) check_conversion(runner, type);
  check_streams(runner);
  check_graphs(runner);
  check_memory(runner);
}

}  // namespace qft::selftest
