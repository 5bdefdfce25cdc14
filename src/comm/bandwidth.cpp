#include "qft/comm/bandwidth.h"

#include "qft/comm/exchange.h"
#include "qft/core/error.h"
#include "qft/device/memory.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace qft::comm {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array kMeasured = {OpKind::all_reduce, OpKind::all_gather, OpKind::reduce_scatter, OpKind::broadcast,
                                  OpKind::all_to_all};

// Returns one call of `kind` on buffers of ranks * count floats; the call returns when the operation is over for the host.
std::function<void()> call_of(Communicator& comm, OpKind kind, void* a, void* b, std::size_t count) {
  const auto total = count * static_cast<std::size_t>(comm.size());
  switch (kind) {
    case OpKind::all_reduce:
      return [&comm, a, total] { comm.start_all_reduce(a, total, DType::f32).wait_host(); };
    case OpKind::all_gather:
      return [&comm, a, b, count] { comm.start_all_gather(a, b, count, DType::f32).wait_host(); };
    case OpKind::reduce_scatter:
      return [&comm, a, b, count] { comm.start_reduce_scatter(a, b, count, DType::f32).wait_host(); };
    case OpKind::broadcast:
      return [&comm, a, total] { comm.start_broadcast(a, total, DType::f32, 0).wait_host(); };
    case OpKind::all_to_all:
      return [&comm, a, b, count] {
        const std::vector<std::size_t> counts(static_cast<std::size_t>(comm.size()), count);
        comm.start_all_to_all_v(a, counts, b, counts, DType::f32).wait_host();
      };
    default:
      fail("{} cannot be measured", name_of(kind));
  }
}

double seconds_of(const std::function<void()>& call, std::int64_t repetitions) {
  const auto start = Clock::now();
  for (std::int64_t i = 0; i < repetitions; ++i) call();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

double bus_factor(OpKind kind, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  switch (kind) {
    case OpKind::all_reduce:
      return 2 * others;
    case OpKind::all_gather:
    case OpKind::reduce_scatter:
    case OpKind::all_to_all:
      return others;
    case OpKind::broadcast:
      return 1;
    default:
      fail("{} has no bus bandwidth", name_of(kind));
  }
}

OpKind parse_collective(std::string_view word) {
  std::string known;
  for (const auto kind : kMeasured) {
    if (name_of(kind) == word) return kind;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", name_of(kind));
  }
  fail_config("collective '{}' is not known: use one of {}", word, known);
}

BandwidthRow measure(Communicator& comm, c10::Device device, OpKind kind, std::size_t bytes, double seconds) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  const auto count = std::max<std::size_t>(1, bytes / sizeof(float) / ranks);
  const auto total = count * ranks * sizeof(float);
  const device::DeviceBuffer a(total, device);
  const device::DeviceBuffer b(total, device);
  const auto call = call_of(comm, kind, a.data(), b.data(), count);
  comm.barrier();
  const double first = seconds_of(call, 2) / 2;  // also opens connections and faults pages in
  const double slowest = all_reduce_value(comm, first, ReduceOp::max);
  const double wished = seconds / std::max(slowest, 1e-7);
  const auto repetitions = broadcast_value(comm, std::clamp<std::int64_t>(static_cast<std::int64_t>(wished), 2, 10000));
  comm.barrier();
  const double time = all_reduce_value(comm, seconds_of(call, repetitions) / static_cast<double>(repetitions), ReduceOp::max);
  BandwidthRow row;
  row.bytes = total;
  row.microseconds = time * 1e6;
  row.algorithm_gb_s = static_cast<double>(total) / time / 1e9;
  row.bus_gb_s = row.algorithm_gb_s * bus_factor(kind, comm.size());
  return row;
}

std::vector<std::size_t> bandwidth_sizes(std::size_t largest) {
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = 8; bytes < largest; bytes *= 8) sizes.push_back(bytes);
  sizes.push_back(largest);
  return sizes;
}

std::string format_table(OpKind kind, const std::vector<BandwidthRow>& rows) {
  auto text = fmt::format("{:>12}  {:>12}  {:>14}  {:>12}   {}\n", "bytes", "us", "algorithm GB/s", "bus GB/s", name_of(kind));
  for (const auto& row : rows) {
    text +=
        fmt::format("{:>12}  {:>12.1f}  {:>14.3f}  {:>12.3f}\n", row.bytes, row.microseconds, row.algorithm_gb_s, row.bus_gb_s);
  }
  return text;
}

nlohmann::json to_json(const BandwidthRow& row) {
  return {{"bytes", row.bytes},
          {"microseconds", row.microseconds},
          {"algorithm_gb_s", row.algorithm_gb_s},
          {"bus_gb_s", row.bus_gb_s}};
}

}  // namespace qft::comm
