#include "qft/comm/pair_rates.h"

#include "qft/comm/exchange.h"
#include "qft/device/memory.h"

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace qft::comm {
namespace {

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
