#include "qft/comm/mesh.h"

#include "qft/comm/exchange.h"
#include "qft/comm/session.h"
#include "qft/core/error.h"

#include <string>
#include <vector>

#include "support/world.h"
#include <gtest/gtest.h>

namespace qft::comm {
namespace {

std::string refusal(Degrees degrees, int ranks) {
  try {
    resolve(degrees, ranks);
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(Degrees, TheOpenDegreeTakesWhatRemains) {
  EXPECT_EQ(resolve({.replicate = 0, .shard = 4}, 8).replicate, 2);
  EXPECT_EQ(resolve({.replicate = 1, .shard = 0}, 8).shard, 8);
  EXPECT_EQ(resolve({.replicate = 2, .pipeline = 2, .shard = 0, .context = 1, .tensor = 2}, 16).shard, 2);
  EXPECT_EQ(resolve({}, 5).replicate, 5);
}

TEST(Degrees, RefusesWhatDoesNotFitAndSaysWhatWould) {
  EXPECT_EQ(refusal({.replicate = 0, .shard = 4}, 6),
            "6 ranks do not divide by 4 (replicate ? x shard 4): start a multiple of 4 ranks or change the degrees");
  EXPECT_EQ(refusal({.replicate = 2, .shard = 4}, 6),
            "parallel degrees replicate 2 x shard 4 need 8 ranks, but 6 run: start 8 ranks or change the degrees");
  EXPECT_NE(refusal({.replicate = 0, .shard = 0}, 4).find("replicate and shard are both 0"), std::string::npos);
  EXPECT_NE(refusal({.replicate = 1, .shard = -2}, 4).find("shard is -2"), std::string::npos);
}

TEST(Mesh, NeighbouringRanksDifferInTheInnermostAxis) {
  if (world().size() != 4) GTEST_SKIP() << "needs 4 ranks";
  const Mesh mesh(world(), {.replicate = 2, .shard = 2});
  const int rank = world().rank();
  EXPECT_EQ(mesh.coordinate(Axis::shard), rank % 2);
  EXPECT_EQ(mesh.coordinate(Axis::replicate), rank / 2);
  EXPECT_EQ(mesh.group(Axis::shard).rank(), rank % 2);
  EXPECT_EQ(all_gather_value(mesh.group(Axis::shard), rank), (std::vector<int>{rank / 2 * 2, rank / 2 * 2 + 1}));
  EXPECT_EQ(all_gather_value(mesh.group(Axis::replicate), rank), (std::vector<int>{rank % 2, rank % 2 + 2}));
  EXPECT_EQ(mesh.group(Axis::tensor).size(), 1);
  EXPECT_EQ(mesh.group(Axis::shard).name(), "shard");
  EXPECT_EQ(describe(mesh.degrees()), "4 ranks = replicate 2 x shard 2");
}

TEST(Mesh, TheDataGroupLeavesOutTensorAndPipeline) {
  if (world().size() != 4) GTEST_SKIP() << "needs 4 ranks";
  const Mesh mesh(world(), {.replicate = 0, .tensor = 2});
  EXPECT_EQ(mesh.coordinate(Axis::tensor), world().rank() % 2);
}

TEST(Mesh, AllRanksInOneAxis) {
  const Mesh mesh(world(), {.replicate = 1, .shard = 0});
  EXPECT_EQ(mesh.group(Axis::shard).size(), world().size());
  EXPECT_EQ(mesh.group(Axis::replicate).size(), 1);
  EXPECT_EQ(mesh.degree(Axis::shard), world().size());
}

TEST(Mesh, RefusesAlikeOnAllRanks) {
  EXPECT_THROW(Mesh(world(), {.replicate = 1, .shard = world().size() + 1}), ConfigError);
  world().barrier();
}

}  // namespace
}  // namespace qft::comm
