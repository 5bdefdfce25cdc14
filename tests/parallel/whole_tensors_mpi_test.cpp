// Logical tensors from the boxes of several ranks.
#include "qft/parallel/whole_tensors.h"

#include <algorithm>
#include <string>
#include <vector>

#include "support/device_under_test.h"
#include "support/world.h"
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

namespace qft::parallel::testing {
namespace {

model::ParamSpec param(std::string name, Shape shape, std::vector<Box> boxes) {
  model::ParamSpec p;
  p.name = std::move(name);
  p.shape = std::move(shape);
  p.boxes = std::move(boxes);
  p.numel = static_cast<std::int64_t>(elements(p.boxes));
  return p;
}

/// Parts of rank `r` of `n`: rows, columns, two pieces of rows each, the same rows on pairs of ranks, and a whole vector. Uneven.
model::ModelSpec spec_of(int r, int n) {
  const auto cut = [&](std::int64_t extent, std::int64_t part, std::int64_t parts) { return extent * part / parts; };
  const auto rows = [&](std::int64_t first, std::int64_t count, std::int64_t part, std::int64_t parts) -> Box {
    const std::int64_t begin = cut(count, part, parts), end = cut(count, part + 1, parts);
    return {{first + begin, 0}, {end - begin, 5}};
  };
  const std::int64_t left = cut(11, r, n), right = cut(11, r + 1, n), pairs = (n + 1) / 2;
  model::ModelSpec spec;
  model::UnitSpec& unit = spec.units.emplace_back();
  unit.params = {
      param("rows", {7, 5}, {rows(0, 7, r, n)}), param("columns", {3, 11}, {{{0, left}, {3, right - left}}}),
      param("pieces", {13, 5}, n == 1 ? std::vector{rows(0, 13, 0, 1)} : std::vector{rows(8, 5, r, n), rows(0, 8, r, n)}),
      param("shared", {9, 5}, {rows(0, 9, r / 2, pairs)}), param("vector", {6}, {Box::whole({6})})};
  return spec;
}

/// Element i of a tensor has the value i.
at::Tensor values_of(const model::ParamSpec& p, at::ScalarType type) {
  const at::Tensor values = at::empty({p.numel}, at::kLong);
  for (std::int64_t i = 0; i < p.numel; ++i) values.data_ptr<std::int64_t>()[i] = model::logical_index(p, i);
  return values.to(test::device_under_test(), type);
}

void expect_whole(const std::vector<int>& wanting) {
  const int rank = world().rank();
  const model::ModelSpec spec = spec_of(rank, world().size());
  const bool wanted = std::ranges::find(wanting, rank) != wanting.end();
  WholeTensors tensors(spec, world(), test::device_under_test(), [&](const model::ParamSpec&) { return wanted; });
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    tensors.reserve(type);
    for (const model::ParamSpec& p : spec.units[0].params) {
      const at::Tensor whole = tensors.put_together(p, values_of(p, type));
      EXPECT_EQ(whole.defined(), wanted || p.is_whole()) << p.name;
      if (whole.defined()) {
        EXPECT_TRUE(whole.cpu().equal(at::arange(whole.numel(), type))) << p.name << " " << whole;
        EXPECT_EQ(whole.numel(), static_cast<std::int64_t>(Box::whole(p.shape).elements())) << p.name;
      }
    }
  }
}

TEST(WholeTensors, AreMadeWhereTheyAreWanted) {
  const int last = world().size() - 1;
  expect_whole({0});
  expect_whole({last});
  expect_whole({0, last});
  if (world().size() > 1) expect_whole({});
}

TEST(WholeTensors, EachParameterIsWantedByItself) {
  const int rank = world().rank(), ranks = world().size();
  const model::ModelSpec spec = spec_of(rank, ranks);
  const auto writer = [&](const model::ParamSpec& p) { return static_cast<int>(p.name.size()) % ranks; };
  WholeTensors tensors(spec, world(), test::device_under_test(), [&](const model::ParamSpec& p) { return writer(p) == rank; });
  for (const model::ParamSpec& p : spec.units[0].params) {
    const at::Tensor whole = tensors.put_together(p, values_of(p, at::kDouble));
    EXPECT_EQ(whole.defined(), writer(p) == rank || p.is_whole()) << p.name;
    if (whole.defined()) {
      EXPECT_TRUE(whole.cpu().equal(at::arange(whole.numel(), at::kDouble))) << p.name;
    }
  }
}

}  // namespace
}  // namespace qft::parallel::testing
