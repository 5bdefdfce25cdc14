// A pack built by several ranks has the same bytes; errors reach all ranks.
#include "qft/comm/exchange.h"
#include "qft/comm/session.h"
#include "qft/core/error.h"
#include "qft/pack/builder.h"

#include <memory>
#include <optional>

#include "fixture.h"
#include "io/temp_dir.h"
#include "support/world.h"
#include <gtest/gtest.h>

namespace qft::pack {
namespace {

using test::contains;
using test::Encoder;
using test::error_of;
using test::make_attributes;
using test::read_bytes;
using test::TempDir;

// One directory for all ranks, removed by rank 0.
class SharedDir {
 public:
  SharedDir() {
    if (world().rank() == 0) owned_.emplace();
    path_ = comm::broadcast_string(world(), owned_ ? owned_->path().string() : "");
  }
  ~SharedDir() { world().barrier(); }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::optional<TempDir> owned_;
  std::filesystem::path path_;
};

/// Returns the pack that a single rank builds.
std::string expected_bytes(const SharedDir& dir, const Encoder& encoder) {
  comm::on_root(world(), [&] {
    test::build_pack(dir / "alone.h5", encoder.count, encoder.sequences, encoder.chunk_items);
    return std::string();
  });
  return read_bytes(dir / "alone.h5");
}

TEST(PackBuild, GivesTheSameBytesOnAnyNumberOfRanks) {
  // The last one is large enough (10 MB) that every rank writes some of it.
  for (const Encoder& encoder : {Encoder{1, 1, 7}, Encoder{20, 2, 7}, Encoder{500, 1, 20}, Encoder{70000, 1, 2100}}) {
    const SharedDir dir;
    const std::string expected = expected_bytes(dir, encoder);
    std::int64_t encoded = 0;
    const PackSummary summary =
        PackBuilder(world(), dir / "p.h5", make_attributes()).build(encoder.chunks(), [&](std::size_t chunk, PackSink& sink) {
          ++encoded;
          encoder(chunk, sink);
        });
    EXPECT_EQ(summary.items, encoder.count);
    EXPECT_EQ(comm::all_reduce_value(world(), encoded), static_cast<std::int64_t>(encoder.chunks()));
    EXPECT_TRUE(read_bytes(dir / "p.h5") == expected);
    if (encoder.count < 1000) PackReader::open(dir / "p.h5")->verify();
    world().barrier();
  }
}

TEST(PackBuild, AnErrorOnOneRankReachesAllAndItsPartsServeTheNextBuild) {
  const SharedDir dir;
  const Encoder encoder{200};
  const std::string expected = expected_bytes(dir, encoder);
  const std::string error = error_of([&] {
    PackBuilder(world(), dir / "p.h5", make_attributes()).build(encoder.chunks(), [&](std::size_t chunk, PackSink& sink) {
      require(chunk != 9, "record 63 is not JSON");
      encoder(chunk, sink);
    });
  });
  EXPECT_TRUE(contains(error, "record 63 is not JSON"));
  EXPECT_FALSE(std::filesystem::exists(dir / "p.h5"));
  world().barrier();
  const PackSummary summary = PackBuilder(world(), dir / "p.h5", make_attributes()).build(encoder.chunks(), encoder);
  EXPECT_LT(summary.chunks_reused, encoder.chunks());
  EXPECT_TRUE(read_bytes(dir / "p.h5") == expected);
  world().barrier();
}

TEST(PackBuild, AGroupOfTheRanksBuildsItsOwnPack) {
  const SharedDir dir;
  const Encoder encoder{100};
  const std::string expected = expected_bytes(dir, encoder);
  const int color = world().rank() % 2;
  const auto group = world().split(color, world().rank(), "half");
  const auto path = dir / ("group-" + std::to_string(color) + ".h5");
  PackBuilder(*group, path, make_attributes()).build(encoder.chunks(), encoder);
  EXPECT_TRUE(read_bytes(path) == expected);
  world().barrier();
}

TEST(PackBuild, SaysThatRanksDoNotShareTheFolder) {
  if (world().size() == 1) GTEST_SKIP() << "needs two ranks";
  const TempDir own;  // each rank has its own, like disks private to nodes
  const Encoder encoder{20};
  const std::string error =
      error_of([&] { PackBuilder(world(), own / "p.h5", make_attributes()).build(encoder.chunks(), encoder); });
  EXPECT_TRUE(contains(error, "put the pack into a folder that all nodes share"));
}

TEST(PackBuild, AFullDiskDuringAssemblyIsAnErrorOnAllRanks) {
  const SharedDir dir;
  const Encoder encoder{2000, 1, 100};
  // The limit holds for files of any size: parts fit, the pack does not.
  EXPECT_TRUE(
      contains(test::error_with_file_limit(
                   100'000, [&] { PackBuilder(world(), dir / "p.h5", make_attributes()).build(encoder.chunks(), encoder); }),
               "pack.h5"));
  EXPECT_FALSE(std::filesystem::exists(dir / "p.h5"));
  EXPECT_FALSE(std::filesystem::exists(dir / "tmp-p.h5.parts/pack.h5"));
  world().barrier();
}

}  // namespace
}  // namespace qft::pack
