// Checkpoints of models in which every rank computes with parts of the tensors, and their conversion to other layouts.
#include "qft/checkpoint/diff.h"
#include "qft/checkpoint/reshard.h"
#include "qft/checkpoint/verify.h"

#include <cstring>
#include <filesystem>
#include <numeric>

#include "checkpoint/sample.h"
#include "io/temp_dir.h"
#include <gtest/gtest.h>

namespace qft::checkpoint {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::error_of;
using test::TempDir;

const Shape kShape{6, 10};

/// Element i of the tensor has the value i.
std::vector<float> values_of(const BoxRange& range) {
  std::vector<float> values(range.end - range.begin);
  const std::uint64_t all = Box::whole(kShape).elements();
  for_each_common_run(range, {Box::whole(kShape), 0, all}, [&](const CommonRun& run) {
    for (std::uint64_t i = 0; i < run.count; ++i) values[run.a + i] = static_cast<float>(run.b + i);
  });
  return values;
}

/// Saves a checkpoint with one tensor in these ranges.
fs::path save(const fs::path& dir, const std::vector<BoxRange>& ranges) {
  const auto comm = comm::make_self_communicator();
  CheckpointWriter writer(*comm, io::posix_storage(),
                          {.output_dir = dir, .step = 7, .save_total_limit = {}, .best_checkpoint = {}});
  std::vector<HostSlice> slices;
  std::vector<std::vector<float>> values;
  for (const BoxRange& r : ranges) {
    values.push_back(values_of(r));
    slices.push_back({{"w", DType::f32, kShape, r.box, r.begin, r.end}, values.back().data()});
  }
  writer.write_slices(slices);
  return writer.commit({{"strategy", "zero3"}});
}

/// The two halves of the columns; the right half is two boxes of rows. Each box has two owners.
const std::vector<BoxRange> kGrid{{{{0, 0}, {6, 5}}, 0, 13},
                                  {{{0, 0}, {6, 5}}, 13, 30},
                                  {{{0, 5}, {2, 5}}, 0, 4},
                                  {{{0, 5}, {2, 5}}, 4, 10},
                                  {{{2, 5}, {4, 5}}, 0, 20}};
const std::vector<BoxRange> kRows{{{{0, 0}, {3, 10}}, 0, 30}, {{{3, 0}, {3, 10}}, 0, 7}, {{{3, 0}, {3, 10}}, 7, 30}};
const std::vector<BoxRange> kFlat{{Box::whole(kShape), 0, 11}, {Box::whole(kShape), 11, 60}};

TEST(Boxes, AnyLayoutReadsWhatAnyOtherWrote) {
  for (const auto& written : {kGrid, kRows, kFlat}) {
    const TempDir dir;
    const Checkpoint checkpoint = Checkpoint::open(save(dir.path(), written));
    ASSERT_TRUE(verify(checkpoint.dir()).ok());
    for (const auto& wanted : {kGrid, kRows, kFlat})
      for (const BoxRange& r : wanted) {
        std::vector<float> got(r.end - r.begin, -1.0F);
        checkpoint.read({{"w", DType::f32, kShape, r.box, r.begin, r.end}, got.data()});
        EXPECT_EQ(got, values_of(r)) << r.box.describe();
      }
  }
}

/// The boxes of rank `r` of `n` that share a fused projection of two parts: its rows of the first part, then of the second.
std::vector<Box> boxes_of(std::int64_t r, std::int64_t n) {
  const auto rows = [&](std::int64_t first, std::int64_t count) -> Box {
    const std::int64_t begin = count * r / n, end = count * (r + 1) / n;
    return {{first + begin, 0}, {end - begin, kShape[1]}};
  };
  return {rows(2, 4), rows(0, 2)};
}

/// The elements of tensor rank `r` of `n` that slice `s` of `slices` holds, as slices of the boxes.
std::vector<TensorSlice> slices_of(int r, int n, std::uint64_t s, std::uint64_t slices) {
  const std::vector<Box> boxes = boxes_of(r, n);
  const std::uint64_t all = elements(boxes);
  return slices_in_boxes("w", DType::f32, kShape, {boxes, all * s / slices, all * (s + 1) / slices});
}

TEST(Boxes, OfARankAreSlicesOfTheirOwn) {
  const auto slices = slices_of(1, 2, 1, 3);  // elements [10, 20) of 20 rows' elements in the first box, then 10 of the second
  ASSERT_EQ(slices.size(), 1U);
  EXPECT_EQ(slices[0].box, (Box{{4, 0}, {2, 10}}));
  EXPECT_EQ(std::pair(slices[0].begin, slices[0].end), std::pair(std::uint64_t{10}, std::uint64_t{20}));
  const auto both = slices_of(1, 2, 0, 1);
  ASSERT_EQ(both.size(), 2U);
  EXPECT_EQ(both[1].box, (Box{{1, 0}, {1, 10}}));
}

TEST(Boxes, AnyShareReadsWhatAnyOtherWrote) {
  for (const auto& [writers, owners] : {std::pair{1, 1}, {2, 1}, {2, 3}}) {
    const TempDir dir;
    std::vector<BoxRange> written;
    for (int r = 0; r < writers; ++r)
      for (int s = 0; s < owners; ++s)
        for (const TensorSlice& slice : slices_of(r, writers, static_cast<std::uint64_t>(s), static_cast<std::uint64_t>(owners)))
          written.push_back({slice.box, slice.begin, slice.end});
    const Checkpoint checkpoint = Checkpoint::open(save(dir.path(), written));  // refuses gaps and overlaps
    for (const int readers : {1, 2})
      for (int r = 0; r < readers; ++r)
        for (const std::uint64_t s : {0, 1})
          for (const TensorSlice& slice : slices_of(r, readers, s, 2)) {
            std::vector<float> got(slice.end - slice.begin, -1.0F);
            checkpoint.read({slice, got.data()});
            EXPECT_EQ(got, values_of({slice.box, slice.begin, slice.end})) << slice.box.describe();
          }
  }
}

TEST(Boxes, DiffAndReshardSeeTheTensor) {
  const TempDir a, b, c;
  const fs::path grid = save(a.path(), kGrid), flat = save(b.path(), kFlat), dealt = c / "checkpoint-7";
  EXPECT_TRUE(diff(grid, flat).equal());
  reshard(io::posix_storage(), grid, dealt, 3);
  EXPECT_TRUE(verify(dealt).ok());
  EXPECT_TRUE(diff(dealt, flat).equal());
}

TEST(Boxes, ASliceMustLieInItsTensor) {
  const TempDir dir;
  const Checkpoint checkpoint = Checkpoint::open(save(dir.path(), kGrid));
  float value = 0;
  const auto read = [&](const Box& box, std::uint64_t begin, std::uint64_t end) {
    return error_of([&] { checkpoint.read({{"w", DType::f32, kShape, box, begin, end}, &value}); });
  };
  EXPECT_TRUE(contains(read({{0, 6}, {6, 5}}, 0, 1), "tensor 'w' has shape [6, 10], got box [6, 5] from [0, 6] on"));
  EXPECT_TRUE(
      contains(read({{0, 6}, {1, 4}}, 4, 5), "tensor 'w' has 4 elements in the box [1, 4] from [0, 6] on, got slice [4, 5)"));
  EXPECT_TRUE(
      contains(error_of([&] { save(dir / "other", {{{{0, 0}, {6, 5}}, 0, 30}}); }), "has 60 elements, but its boxes hold 30"));
}

}  // namespace
}  // namespace qft::checkpoint
