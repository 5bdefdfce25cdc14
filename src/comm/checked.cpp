// Checked mode: the ranks compare each collective before they run it.
#include "qft/comm/communicator.h"
#include "qft/core/error.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "call.h"

namespace qft::comm {

namespace {

// A collective as plain integers; equal on all ranks if the calls match.
using Signature = std::array<std::int64_t, 6>;

std::int64_t mix(std::span<const std::size_t> counts) {
  std::uint64_t value = 0x9E3779B97F4A7C15ULL;
  for (const auto count : counts) value = (value ^ count) * 0xFF51AFD7ED558CCDULL + 1;
  return static_cast<std::int64_t>(value);
}

std::string describe(const Signature& s) {
  return comm::describe(static_cast<OpKind>(s[0]), static_cast<DType>(s[1]), static_cast<std::size_t>(s[2]),
                        static_cast<ReduceOp>(s[3]), static_cast<int>(s[4]));
}

}  // namespace

void Communicator::compare_over_ranks(const Call& call) {
  // The total received in all_to_all may differ between ranks.
  const auto total = call.kind == OpKind::all_to_all ? 0 : static_cast<std::int64_t>(call.count);
  const Signature own = {static_cast<std::int64_t>(call.kind),
                         static_cast<std::int64_t>(call.dtype),
                         total,
                         static_cast<std::int64_t>(call.op),
                         call.peer,
                         mix(call.counts)};
  std::vector<Signature> all(static_cast<std::size_t>(size_));
  const std::vector<std::size_t> counts(all.size(), own.size());
  host().do_all_gather(own.data(), all.data(), counts, DType::i64, Mode::blocking).wait();
  for (std::size_t r = 1; r < all.size(); ++r) {
    if (all[r] == all[0]) continue;
    const bool slices = describe(all[r]) == describe(all[0]);
    fail("collective {} on '{}' differs between ranks: rank 0 calls {}, rank {} calls {}{}", sequence_, name_, describe(all[0]),
         r, describe(all[r]), slices ? " with other counts per rank" : "");
  }
}

void Communicator::compare_slices(Counts send_counts, Counts recv_counts) {
  const auto ranks = static_cast<std::size_t>(size_);
  std::vector<std::int64_t> own;
  own.insert(own.end(), send_counts.begin(), send_counts.end());
  own.insert(own.end(), recv_counts.begin(), recv_counts.end());
  std::vector<std::int64_t> all(own.size() * ranks);
  const std::vector<std::size_t> counts(ranks, own.size());
  host().do_all_gather(own.data(), all.data(), counts, DType::i64, Mode::blocking).wait();
  for (std::size_t from = 0; from < ranks; ++from) {
    for (std::size_t to = 0; to < ranks; ++to) {
      const auto sent = all[from * 2 * ranks + to];
      const auto expected = all[to * 2 * ranks + ranks + from];
      require(sent == expected, "all_to_all on '{}': rank {} sends {} elements to rank {}, which expects {}", name_, from, sent,
              to, expected);
    }
  }
}

}  // namespace qft::comm
