// Parts of quantised matrices: they decode to the same bits as the whole, in every format.
#include "qft/ops/quantized_part.h"

#include "qft/core/error.h"

#include <string>
#include <vector>

#include "io/temp_dir.h"
#include "quantized_support.h"
#include <ATen/ops/cat.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

namespace qft::ops {
namespace {

using namespace testing;

/// Rows [row, row + rows) of a matrix, columns [column, column + columns).
Box piece(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) {
  return {{row, column}, {rows, columns}};
}

at::Tensor decoded_matrix(const at::Tensor& bytes, const QuantizedLayout& layout) {
  at::Tensor out = at::empty({layout.numel()}, at::kFloat);
  dequantize(bytes, layout, out);
  return out.view({layout.rows, layout.columns});
}

at::Tensor bytes_of(const QuantizedLayout& layout) {
  const bool written = layout.kind.columns == 0 && !in_groups(layout.kind.format);
  return written ? quantized(at::randn({layout.rows, layout.columns}), layout) : stored_bytes(layout);
}

void expect_same(const QuantizedLayout& whole, const std::vector<Box>& boxes) {
  SCOPED_TRACE(describe(whole.kind) + ", " + boxes.front().describe());
  const at::Tensor all = bytes_of(whole), numbers = decoded_matrix(all, whole);
  const QuantizedLayout part = part_layout(whole, boxes, "w");
  const at::Tensor bytes = at::zeros({part.bytes}, at::kByte);
  copy_part(whole, all.data_ptr<std::uint8_t>(), boxes, part, bytes.data_ptr<std::uint8_t>());
  std::vector<at::Tensor> expected;
  for (const Box& box : boxes)
    expected.push_back(numbers.narrow(0, box.start[0], box.extent[0]).narrow(1, box.start[1], box.extent[1]));
  EXPECT_TRUE(decoded_matrix(bytes, part).equal(at::cat(expected)));
  EXPECT_LE(part.code_bytes(), whole.code_bytes());
}

std::vector<Quantization> all_kinds() {
  std::vector<Quantization> kinds(std::begin(kKinds), std::end(kKinds));
  kinds.insert(kinds.end(), std::begin(kStoredKinds), std::end(kStoredKinds));
  kinds.push_back({.format = QuantFormat::fp8, .columns = 128, .tile_rows = 128});
  return kinds;
}

TEST(QuantizedPart, OfRowsDecodesToTheBitsOfTheWhole) {
  at::manual_seed(5);
  for (const Quantization& kind : all_kinds())
    for (const std::int64_t columns : {64, 192, 96, 24}) {
      const auto whole = QuantizedLayout::of(kind, 600, columns);
      const std::int64_t step = part_steps(whole).rows;
      expect_same(whole, {piece(0, 600, 0, columns)});
      expect_same(whole, {piece(0, 3 * step, 0, columns)});
      expect_same(whole, {piece(3 * step, 5 * step, 0, columns)});
      expect_same(whole, {piece(256, 600 - 256, 0, columns)});  // where a nested block begins, if there are 64 columns
      expect_same(whole, {piece(step, 2 * step, 0, columns), piece(8 * step, 4 * step, 0, columns),
                          piece(16 * step, 600 - 16 * step, 0, columns)});
    }
}

TEST(QuantizedPart, OfColumnsDecodesToTheBitsOfTheWhole) {
  at::manual_seed(6);
  for (const Quantization& kind : all_kinds()) {
    const auto whole = QuantizedLayout::of(kind, 37, 256);
    const std::int64_t step = part_steps(whole).columns;
    if (step == whole.columns) continue;  // act order
    for (const auto& [begin, end] : {std::pair<std::int64_t, std::int64_t>{0, 64}, {64, 192}, {128, 256}, {2 * step, 256}})
      expect_same(whole, {piece(0, 37, begin, end - begin)});
    expect_same(whole, {piece(2, 5, 128, 64), piece(20, 17, 128, 64)});
  }
}

TEST(QuantizedPart, KeepsCodesAndNestedScalesWhereItBeginsWithOne) {
  const auto whole = QuantizedLayout::of({QuantFormat::nf4, true}, 600, 64);
  const auto at_block = part_layout(whole, std::vector{piece(256, 100, 0, 64)}, "w"),
             between = part_layout(whole, std::vector{piece(255, 100, 0, 64)}, "w");
  EXPECT_TRUE(at_block.kind.nested);
  EXPECT_FALSE(between.kind.nested);
  const at::Tensor all = bytes_of(whole), bytes = at::zeros({between.bytes}, at::kByte);
  copy_part(whole, all.data_ptr<std::uint8_t>(), std::vector{piece(255, 100, 0, 64)}, between, bytes.data_ptr<std::uint8_t>());
  EXPECT_TRUE(bytes.narrow(0, 0, between.code_bytes()).equal(all.narrow(0, 255 * 32, between.code_bytes())));
}

TEST(QuantizedPart, IsRefusedByNameWhereACutIsNotPossible) {
  const auto refusal = [](const Quantization& kind, std::int64_t columns, const Box& box) {
    return test::error_of([&] { part_layout(QuantizedLayout::of(kind, 40, columns), std::vector{box}, "layers.0.up_proj"); });
  };
  EXPECT_TRUE(test::contains(refusal({QuantFormat::nf4}, 24, piece(4, 8, 0, 24)),
                             "layers.0.up_proj is kept as nf4: its 40 outputs can be cut at multiples of 8, but a tensor rank "
                             "would hold 8 from 4 on"));
  EXPECT_TRUE(test::contains(refusal({QuantFormat::nf4}, 256, piece(0, 40, 0, 96)),
                             "its 256 inputs can be cut at multiples of 64, but a tensor rank would hold 96 from 0 on"));
  EXPECT_TRUE(test::contains(refusal({QuantFormat::nf4}, 24, piece(0, 40, 0, 8)), "can be cut at multiples of 24"));
  EXPECT_TRUE(test::contains(refusal({.format = QuantFormat::groups4, .columns = 32, .ordered = true}, 64, piece(0, 40, 0, 32)),
                             "layers.0.up_proj is kept as int4 in groups of 32 in act order"));
  EXPECT_TRUE(test::contains(refusal({.format = QuantFormat::groups4, .columns = 32}, 64, piece(0, 40, 0, 33)),
                             "can be cut at multiples of 2"));
}

}  // namespace
}  // namespace qft::ops
