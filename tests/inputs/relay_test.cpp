#include "inputs/relay.h"

#include "qft/comm/session.h"

#include <cstring>
#include <vector>

#include <gtest/gtest.h>

namespace qft::inputs {
namespace {

TEST(Relay, BringsEveryByteToEveryRankInOrder) {
  comm::Communicator& world = comm::Session::current().world();
  for (const std::uint64_t total :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{4} << 20, (std::uint64_t{71} << 20) + 12345}) {
    std::vector<std::byte> got;
    std::uint64_t read = 0;
    relay(
        world, total,
        [&](std::span<std::byte> bytes) {
          for (std::byte& byte : bytes) byte = static_cast<std::byte>(read++ * 2654435761U >> 13);
          return true;
        },
        [&](std::span<const std::byte> bytes) { got.insert(got.end(), bytes.begin(), bytes.end()); });
    ASSERT_EQ(got.size(), total);
    std::uint64_t wrong = 0;
    for (std::uint64_t i = 0; i < total; ++i) wrong += got[i] != static_cast<std::byte>(i * 2654435761U >> 13);
    EXPECT_EQ(wrong, 0U) << total;
  }
}

TEST(Relay, PassesRanksThatWriteNothing) {
  comm::Communicator& world = comm::Session::current().world();
  const bool writes = world.rank() + 1 == world.size();
  std::uint64_t got = 0;
  const Write write = [&](std::span<const std::byte> bytes) { got += bytes.size(); };
  const Read read = [](std::span<std::byte> bytes) { return std::memset(bytes.data(), 1, bytes.size()) != nullptr; };
  EXPECT_TRUE(relay(world, 9 << 20, read, writes ? write : Write()));
  EXPECT_EQ(got, writes ? 9U << 20 : 0U);
}

TEST(Relay, EndsEverywhereWhereTheFirstReadsNoMore) {
  comm::Communicator& world = comm::Session::current().world();
  for (const int most : {1, 2, 5, 9, 20}) {
    int reads = 0;
    std::uint64_t got = 0;
    const Read read = [&](std::span<std::byte>) { return ++reads < most; };
    EXPECT_FALSE(relay(world, std::uint64_t{80} << 20, read, [&](std::span<const std::byte> bytes) { got += bytes.size(); }));
    EXPECT_EQ(reads, world.rank() == 0 ? most : 0);
    EXPECT_LE(got, std::uint64_t{static_cast<unsigned>(most) + 8} * (4U << 20));
  }
}

}  // namespace
}  // namespace qft::inputs
