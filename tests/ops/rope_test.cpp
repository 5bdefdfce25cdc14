#include "qft/ops/rope.h"

#include "qft/core/error.h"
#include "qft/ops/attention.h"

#include <cmath>

#include "ops_support.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>

namespace qft::ops {
namespace {

using namespace testing;

std::vector<double> frequencies(std::int64_t head_dim) {
  std::vector<double> out;
  for (std::int64_t i = 0; i < head_dim; i += 2)
    out.push_back(std::pow(10000.0F, -static_cast<float>(i) / static_cast<float>(head_dim)));
  return out;
}

/// transformers' apply_rotary_pos_emb in fp64 with the table's values.
at::Tensor rotated(const at::Tensor& x, const at::Tensor& positions, const RopeTable& table) {
  const at::Tensor x64 = x.to(at::kDouble);
  const std::int64_t half = x.size(2) / 2;
  auto rows = [&](const at::Tensor& t) {
    const at::Tensor picked = t.to(at::kDouble).index_select(0, positions);
    return at::cat({picked, picked}, 1).unsqueeze(1);
  };
  const at::Tensor turned = at::cat({-x64.narrow(2, half, half), x64.narrow(2, 0, half)}, 2);
  return x64 * rows(table.cos) + turned * rows(table.sin);
}

TEST(Rope, RotatesQueryAndKeyColumnsOnly) {
  const at::Tensor positions = int32s({0, 1, 2, 0, 1, 63, 7});
  for (const at::ScalarType dtype : kDtypes) {
    for (const std::int64_t head_dim : {64, 128, 80, 96, 24, 2}) {
      const RopeTable table = RopeTable::build(frequencies(head_dim), 64, dtype, at::kCPU);
      const at::Tensor qkv = randn({7, 5 * head_dim}, dtype, 1), original = qkv.clone();
      rope(heads_view(qkv, 0, 4, head_dim), positions, table, RopeDirection::forward);
      expect_close(heads_view(qkv, 0, 4, head_dim), rotated(heads_view(original, 0, 4, head_dim), positions, table),
                   tolerance(dtype), "rotated");
      EXPECT_TRUE(heads_view(qkv, 4, 1, head_dim).equal(heads_view(original, 4, 1, head_dim)));
      qkv.copy_(original);
      rope(heads_view(qkv, 0, 4, head_dim), positions, table, RopeDirection::backward);
      const RopeTable opposite{table.cos, -table.sin};
      expect_close(heads_view(qkv, 0, 4, head_dim), rotated(heads_view(original, 0, 4, head_dim), positions, opposite),
                   tolerance(dtype), "rotated back");
    }
  }
}

TEST(Rope, TableRoundsCosinesToTheDataDtype) {
  const RopeTable exact = RopeTable::build(frequencies(64), 128, at::kFloat, at::kCPU);
  const RopeTable rounded = RopeTable::build(frequencies(64), 128, at::kBFloat16, at::kCPU);
  EXPECT_EQ(rounded.cos.scalar_type(), at::kFloat);
  EXPECT_TRUE(rounded.cos.equal(exact.cos.to(at::kBFloat16).to(at::kFloat)));
  EXPECT_NEAR(exact.sin[100][3].item<double>(), std::sin(100.0 * frequencies(64)[3]), 1e-5);
}

TEST(Rope, AttentionScalingMultipliesTheTable) {
  const RopeTable plain = RopeTable::build(frequencies(8), 4, at::kDouble, at::kCPU);
  const RopeTable scaled = RopeTable::build(frequencies(8), 4, at::kDouble, at::kCPU, 1.25);
  expect_close(scaled.sin, plain.sin * 1.25, 1e-7, "sin");
}

TEST(Rope, RefusesPositionsOutsideTheTable) {
  const RopeTable table = RopeTable::build(frequencies(8), 4, at::kFloat, at::kCPU);
  const at::Tensor x = randn({2, 1, 8}, at::kFloat, 1);
  EXPECT_THROW(rope(x, int32s({0, 4}), table, RopeDirection::forward), Error);
  EXPECT_THROW(rope(x, int32s({-1, 0}), table, RopeDirection::forward), Error);
  EXPECT_THROW(RopeTable::build({}, 4, at::kFloat, at::kCPU), Error);
}

}  // namespace
}  // namespace qft::ops
