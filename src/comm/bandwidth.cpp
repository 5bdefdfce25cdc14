#include "qft/comm/bandwidth.h"

#include "qft/comm/exchange.h"
#include "qft/core/error.h"
#include "qft/device/memory.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>

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

constexpr std::uint64_t kFirstBytes = std::uint64_t{256} << 10, kMostBytes = std::uint64_t{64} << 20;
constexpr int kTag = 11;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The two ends of one direction: messages of doubling size, each acknowledged, until one takes a good part of the time.
class Direction {
 public:
  Direction(Communicator& comm, void* data, int peer) : comm_(comm), data_(data), peer_(peer) {}

  /// Returns the bytes per second of the last message.
  double send(double seconds) {
    double rate = 0;
    const double start = now();
    for (std::uint64_t bytes = kFirstBytes; bytes <= kMostBytes; bytes *= 2) {
      announce(bytes);
      const double from = now();
      comm_.start_send(data_, bytes, DType::u8, peer_).wait_host();
      heard();
      const double took = now() - from;
      rate = static_cast<double>(bytes) / took;
      if (took > seconds / 3 || now() - start > seconds) break;
    }
    announce(0);
    return rate;
  }

  void receive() {
    for (;;) {
      std::uint64_t bytes = 0;
      comm_.host().recv(&bytes, 1, DType::i64, peer_, kTag);
      if (bytes == 0) return;
      comm_.start_recv(data_, bytes, DType::u8, peer_).wait_host();
      const std::uint8_t done = 1;
      comm_.host().send(&done, 1, DType::u8, peer_, kTag);
    }
  }

 private:
  void announce(std::uint64_t bytes) { comm_.host().send(&bytes, 1, DType::i64, peer_, kTag); }
  void heard() {
    std::uint8_t done = 0;
    comm_.host().recv(&done, 1, DType::u8, peer_, kTag);
  }

  Communicator& comm_;
  void* data_;
  int peer_;
};

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

std::vector<std::vector<std::pair<int, int>>> pair_rounds(int ranks) {
  // The circle method: one rank stays, the others move by one place each round. With an odd number, the rank paired with the
  // empty place rests.
  const int places = ranks + ranks % 2;
  std::vector<std::vector<std::pair<int, int>>> rounds;
  for (int round = 0; round + 1 < places; ++round) {
    auto& pairs = rounds.emplace_back();
    const auto who = [&](int place) { return place == 0 ? 0 : 1 + (place - 1 + round) % (places - 1); };
    for (int place = 0; place < places / 2; ++place) {
      const auto [low, high] = std::minmax({who(place), who(places - 1 - place)});
      if (high < ranks) pairs.emplace_back(low, high);
    }
  }
  return rounds;
}

std::vector<PairRate> measure_pairs(Communicator& comm, c10::Device device, double seconds) {
  const device::DeviceBuffer buffer(kMostBytes, device);
  const int me = comm.rank();
  std::vector<PairRate> rates;
  for (const auto& round : pair_rounds(comm.size())) {
    double mine = 0;  // rate of this rank's sends
    for (const auto& [low, high] : round) {
      if (me != low && me != high) continue;
      Direction direction(comm, buffer.data(), me == low ? high : low);
      if (me == high) direction.receive();
      mine = direction.send(seconds);
      if (me == low) direction.receive();
    }
    const auto all = all_gather_value(comm, mine);  // also separates the rounds
    for (const auto& [low, high] : round) {
      rates.push_back({low, high, all[static_cast<std::size_t>(low)]});
      rates.push_back({high, low, all[static_cast<std::size_t>(high)]});
    }
  }
  return rates;
}

}  // namespace qft::comm
