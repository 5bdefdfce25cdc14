#include "qft/core/box.h"

#include "qft/core/error.h"

#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace qft {
namespace {

/// Returns the position of each element of a range in the whole tensor.
std::vector<std::int64_t> places(const BoxRange& range, const Shape& shape) {
  std::vector<std::int64_t> all;
  Shape at = range.box.start;
  for (std::uint64_t i = 0, n = range.box.elements(); i < n; ++i) {
    std::int64_t place = 0;
    for (std::size_t d = 0; d < shape.size(); ++d) place = place * shape[d] + at[d];
    if (i >= range.begin && i < range.end) all.push_back(place);
    for (std::size_t d = shape.size(); d-- > 0;) {
      if (++at[d] < range.box.start[d] + range.box.extent[d]) break;
      at[d] = range.box.start[d];
    }
  }
  return all;
}

std::vector<CommonRun> runs_of(const BoxRange& a, const BoxRange& b) {
  std::vector<CommonRun> runs;
  for_each_common_run(a, b, [&](const CommonRun& run) { runs.push_back(run); });
  return runs;
}

/// Checks that the runs pair equal positions of the tensor, in ascending order, and that they visit each common element once.
void expect_runs(const Shape& shape, const BoxRange& a, const BoxRange& b) {
  const auto mine = places(a, shape), theirs = places(b, shape);
  std::vector<std::int64_t> seen, expected;
  for (const std::int64_t place : mine)
    if (std::find(theirs.begin(), theirs.end(), place) != theirs.end()) expected.push_back(place);
  for (const CommonRun& run : runs_of(a, b))
    for (std::uint64_t i = 0; i < run.count; ++i) {
      ASSERT_LT(run.a + i, mine.size());
      ASSERT_LT(run.b + i, theirs.size());
      EXPECT_EQ(mine[run.a + i], theirs[run.b + i]);
      seen.push_back(mine[run.a + i]);
    }
  EXPECT_EQ(seen, expected);
}

TEST(Box, RunsAreWhatRangesHaveInCommon) {
  std::mt19937 random(3);
  const auto below = [&](std::int64_t n) { return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n + 1)); };
  const auto range_in = [&](const Shape& shape) {
    BoxRange range;
    for (const std::int64_t d : shape) {
      range.box.start.push_back(random() % 2 ? 0 : below(d));
      range.box.extent.push_back(random() % 2 ? d - range.box.start.back() : below(d - range.box.start.back()));
    }
    const auto n = static_cast<std::int64_t>(range.box.elements());
    const std::int64_t begin = random() % 2 ? 0 : below(n);
    range.begin = static_cast<std::uint64_t>(begin);
    range.end = static_cast<std::uint64_t>(begin + below(n - begin));
    return range;
  };
  for (const Shape& shape : {Shape{}, Shape{9}, Shape{5, 7}, Shape{3, 4, 5}, Shape{2, 1, 3, 2}, Shape{0, 3}})
    for (int i = 0; i < 400; ++i) expect_runs(shape, range_in(shape), range_in(shape));
}

TEST(Box, EqualBoxesAndWholeRowsAreOneRun) {
  const Shape shape{6, 4};
  const BoxRange whole{Box::whole(shape), 3, 20}, rows{{{2, 0}, {3, 4}}, 0, 12}, columns{{{0, 1}, {6, 2}}, 0, 12};
  EXPECT_EQ(runs_of(whole, whole).size(), 1U);
  EXPECT_EQ(runs_of(whole, rows).size(), 1U);
  EXPECT_EQ(runs_of(columns, columns).size(), 1U);
  EXPECT_EQ(runs_of(whole, columns).size(), 4U);  // rows 0 and 5 are outside the range
}

TEST(Box, KnowsWhatIsInsideAndApart) {
  const Box box{{1, 0}, {2, 4}};
  EXPECT_EQ(box.elements(), 8U);
  EXPECT_EQ(box.describe(), "[2, 4] from [1, 0] on");
  EXPECT_TRUE(box.inside({3, 4}));
  EXPECT_FALSE(box.inside({2, 4}) || box.inside({3, 4, 1}) || Box({{-1}, {2}}).inside({3}) ||
               Box({{1}, {INT64_MAX}}).inside({3}));
  EXPECT_TRUE(disjoint(box, {{0, 0}, {1, 4}}));
  EXPECT_FALSE(disjoint(box, {{2, 3}, {1, 1}}));
  EXPECT_EQ(Box::whole({}).elements(), 1U);
  EXPECT_THROW(Box({{0, 0}, {INT64_MAX, 4}}).elements(), Error);
}

TEST(Boxes, LieOneAfterTheOther) {
  const Shape shape{6, 4};
  const std::vector<Box> boxes{{{4, 1}, {2, 2}}, {{0, 0}, {0, 4}}, {{1, 0}, {2, 4}}};
  EXPECT_EQ(elements(boxes), 12U);
  std::vector<std::int64_t> all;
  for (const Box& box : boxes)
    for (const std::int64_t place : places({box, 0, box.elements()}, shape)) all.push_back(place);
  for (std::uint64_t i = 0; i < 12; ++i) EXPECT_EQ(index_in_whole(boxes, shape, i), static_cast<std::uint64_t>(all[i]));
  EXPECT_THROW(index_in_whole(boxes, shape, 12), Error);
  for (std::uint64_t begin = 0; begin <= 12; ++begin)
    for (std::uint64_t end = begin; end <= 12; ++end) {
      const BoxesRange range{boxes, begin, end};
      std::vector<std::int64_t> of_parts;
      for (const BoxPart& part : parts_of(range)) {
        EXPECT_EQ(part.begin, of_parts.size());
        for (const std::int64_t place : places(part.range, shape)) of_parts.push_back(place);
      }
      EXPECT_EQ(of_parts,
                std::vector(all.begin() + static_cast<std::ptrdiff_t>(begin), all.begin() + static_cast<std::ptrdiff_t>(end)));
      // The runs reach every element of the range within the tensor's elements [6, 19), each at its place.
      std::vector<std::int64_t> seen, expected;
      for_each_common_run(range, {Box::whole(shape), 6, 19}, [&](const CommonRun& run) {
        for (std::uint64_t i = 0; i < run.count; ++i) {
          EXPECT_EQ(of_parts.at(run.a + i), static_cast<std::int64_t>(6 + run.b + i));
          seen.push_back(of_parts.at(run.a + i));
        }
      });
      for (const std::int64_t place : of_parts)
        if (place >= 6 && place < 19) expected.push_back(place);
      EXPECT_EQ(seen, expected);
    }
}

// A search from the first row would take minutes.
TEST(Box, FindsTheEndOfAHugeTensorAtOnce) {
  const std::int64_t rows = std::int64_t{1} << 40;
  const Box whole = Box::whole({rows, 4}), column{{0, 1}, {rows, 2}};
  const auto all = column.elements();
  const auto runs = runs_of({column, all - 3, all}, {whole, 0, whole.elements()});
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[0].b, whole.elements() - 6);
  EXPECT_EQ(runs[1].count, 2U);
  EXPECT_EQ(runs_of({column, 0, all}, {whole, 9, 15}).size(), 2U);
}

}  // namespace
}  // namespace qft
