#include "qft/comm/mesh.h"

#include "qft/core/error.h"

#include <map>
#include <string>
#include <vector>

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

TEST(Degrees, AreDescribedByWhatTheyDivide) {
  EXPECT_EQ(describe({.replicate = 1}), "1 rank");
  EXPECT_EQ(describe({.replicate = 2, .shard = 4}), "8 ranks = 2 copies x 4 shards");
  EXPECT_EQ(describe({.replicate = 2, .pipeline = 8, .shard = 1, .context = 1, .tensor = 4}),
            "64 ranks = 2 copies x 8 stages x 4 parts of each matrix (tensor_parallel); 2 data ranks");
  EXPECT_EQ(describe({.replicate = 1, .context = 2}), "2 ranks = 2 parts of each sequence (context_parallel); 1 data rank");
}

TEST(Mesh, NeighbouringRanksDifferInTheInnermostAxis) {
  const Degrees degrees{.replicate = 2, .shard = 3, .context = 2, .tensor = 2};
  for (int rank = 0; rank < 24; ++rank) {
    const Mesh mesh(degrees, rank, 24);
    EXPECT_EQ(mesh.coordinate(Axis::tensor), rank % 2);
    EXPECT_EQ(mesh.coordinate(Axis::context), rank / 2 % 2);
    EXPECT_EQ(mesh.coordinate(Axis::shard), rank / 4 % 3);
    EXPECT_EQ(mesh.coordinate(Axis::replicate), rank / 12);
    EXPECT_EQ(mesh.coordinate(Axis::pipeline), 0);
  }
}

TEST(Mesh, RanksThatDifferOnlyAlongTheAxesShareAGroup) {
  const Degrees degrees{.replicate = 2, .pipeline = 2, .shard = 2, .context = 3, .tensor = 2};
  constexpr int kRanks = 48;
  for (const Axes& axes : {Axes{}, kDataAxes, Axes{Axis::shard, Axis::context}, Axes{Axis::replicate}, Axes{Axis::tensor},
                           Axes{Axis::replicate, Axis::pipeline, Axis::shard, Axis::context, Axis::tensor}}) {
    std::map<int, std::vector<int>> groups;  // ranks in ascending order
    for (int rank = 0; rank < kRanks; ++rank) groups[Mesh(degrees, rank, kRanks).group_number(axes)].push_back(rank);
    for (int rank = 0; rank < kRanks; ++rank) {
      const Mesh mesh(degrees, rank, kRanks);
      const std::vector<int>& group = groups.at(mesh.group_number(axes));
      ASSERT_EQ(mesh.place(axes).size, static_cast<int>(group.size()));
      EXPECT_EQ(group.at(static_cast<std::size_t>(mesh.place(axes).rank)), rank) << "the order of all ranks";
      for (const int other : group)
        for (const Axis axis : {Axis::replicate, Axis::pipeline, Axis::shard, Axis::context, Axis::tensor})
          EXPECT_TRUE(axes.has(axis) || Mesh(degrees, other, kRanks).coordinate(axis) == mesh.coordinate(axis));
    }
  }
}

TEST(Mesh, RefusesDegreesOfAnotherNumberOfRanks) {
  EXPECT_THROW(Mesh({.replicate = 1, .shard = 3}, 0, 2), ConfigError);
}

}  // namespace
}  // namespace qft::comm
