#include "qft/core/error.h"

#include <limits>
#include <utility>

#include "ops_support.h"
#include "quantized_support.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Float8_e4m3fn.h>
#include <gtest/gtest.h>

namespace qft::ops {
namespace {

using namespace testing;

at::Tensor decoded(const at::Tensor& bytes, const QuantizedLayout& layout, at::ScalarType type, bool generic = false) {
  at::Tensor out = at::empty({layout.numel()}, type);
  (generic ? dequantize_generic : dequantize)(bytes, layout, out);
  return out;
}

TEST(Quantized, KernelsDecodeTheSameBitsAsPlainCalls) {
  at::manual_seed(1);
  for (const Quantization& kind : kKinds)
    for (const auto& [rows, columns] : kShapes) {
      const auto layout = QuantizedLayout::of(kind, rows, columns);
      const at::Tensor bytes = quantized(at::randn({rows, columns}), layout);
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16})
        EXPECT_TRUE(decoded(bytes, layout, type).equal(decoded(bytes, layout, type, true)))
            << name_of(kind.format) << (kind.nested ? ", nested, " : ", ") << rows << " x " << columns << " "
            << c10::toString(type);
    }
}

/// Decodes one number by the format's definition.
float number_at(const at::Tensor& bytes, const QuantizedLayout& layout, std::int64_t row, std::int64_t place) {
  const auto* p = bytes.data_ptr<std::uint8_t>();
  const std::int64_t at = row * layout.columns + place;
  const std::int64_t scale = row / layout.kind.tile_rows * layout.blocks_per_row() + place / layout.block();
  const float factor = reinterpret_cast<const float*>(p + layout.scales)[scale];
  if (layout.kind.format == QuantFormat::fp8)
    return static_cast<float>(c10::Float8_e4m3fn(p[at], c10::Float8_e4m3fn::from_bits())) * factor;
  const int code = layout.kind.format == QuantFormat::groups8 ? p[at] : at % 2 == 0 ? p[at / 2] >> 4 : p[at / 2] & 15;
  return static_cast<float>(code - p[layout.zeros + scale]) * factor;
}

TEST(Quantized, FileFormatsAreDecodedByDefinition) {
  at::manual_seed(3);
  for (const Quantization& kind : kStoredKinds)
    for (const auto& [rows, columns] : kStoredShapes) {
      const auto layout = QuantizedLayout::of(kind, rows, columns);
      const at::Tensor bytes = stored_bytes(layout), out = decoded(bytes, layout, at::kFloat);
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16})
        EXPECT_TRUE(decoded(bytes, layout, type).equal(decoded(bytes, layout, type, true)))
            << describe(kind) << ", " << rows << " x " << columns << " " << c10::toString(type);
      const auto* order = reinterpret_cast<const std::int32_t*>(bytes.data_ptr<std::uint8_t>() + layout.order);
      int wrong = 0;
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t i = 0; i < columns; ++i)
          wrong += out.data_ptr<float>()[r * columns + (kind.ordered ? order[i] : i)] != number_at(bytes, layout, r, i) ? 1 : 0;
      EXPECT_EQ(wrong, 0) << describe(kind) << ", " << rows << " x " << columns;
    }
}

TEST(Quantized, GroupsThatDoNotFillBytesAreRefused) {
  EXPECT_THROW(QuantizedLayout::of({.format = QuantFormat::groups4, .columns = 7}, 2, 14), Error) << "a group of 7";
  EXPECT_THROW(QuantizedLayout::of({.format = QuantFormat::groups4}, 2, 15), Error) << "15 columns";
}

TEST(Quantized, NumbersAreNearTheOriginals) {
  at::manual_seed(2);
  const at::Tensor values = at::randn({64, 200});
  const auto error = [&](const Quantization& kind) {
    const auto layout = QuantizedLayout::of(kind, 64, 200);
    return ((decoded(quantized(values, layout), layout, at::kFloat) - values.view(-1)).norm() / values.norm()).item<double>();
  };
  EXPECT_LT(error({QuantFormat::nf4}), 0.10);
  EXPECT_LT(error({QuantFormat::nf4, true}), 0.10);
  EXPECT_LT(error({QuantFormat::fp4}), 0.15);
  EXPECT_LT(error({QuantFormat::int8}), 0.01);
  EXPECT_LT(error({QuantFormat::fp8}), 0.03);
}

TEST(Quantized, EveryCodeOfFp8IsDecodedAsTorchCastsIt) {
  const auto layout = QuantizedLayout::of({QuantFormat::fp8}, 1, 256);
  at::Tensor bytes = at::zeros({layout.bytes}, at::kByte);
  for (std::int64_t i = 0; i < 256; ++i) bytes[i] = i % 128 == 127 ? 0 : i;  // no NaN
  bytes.narrow(0, layout.scales, 4).view(at::kFloat).fill_(0.75);
  EXPECT_TRUE(decoded(bytes, layout, at::kFloat).equal(bytes.narrow(0, 0, 256).view(at::kFloat8_e4m3fn).to(at::kFloat) * 0.75));
}

TEST(Quantized, ZerosStayZeros) {
  for (const Quantization& kind : kKinds) {
    const auto layout = QuantizedLayout::of(kind, 3, 70);
    EXPECT_TRUE(decoded(quantized(at::zeros({3, 70}), layout), layout, at::kFloat).equal(at::zeros({210})))
        << name_of(kind.format);
  }
}

TEST(Quantized, NumbersWithUnderflowingScalesBecomeZero) {
  for (const QuantFormat format : {QuantFormat::int8, QuantFormat::fp8}) {
    const auto layout = QuantizedLayout::of({format}, 2, 3);
    const at::Tensor values = at::zeros({2, 3}), bytes = at::empty({layout.bytes}, at::kByte);
    values[0][1] = 1e-44F;  // a row's largest value: 127 / 1e-44 overflows, and 1e-44 / 448 underflows to 0
    quantize(values, layout, bytes);
    EXPECT_TRUE(bytes.narrow(0, 0, 6).eq(0).all().item<bool>()) << name_of(format);
    EXPECT_TRUE(decoded(bytes, layout, at::kFloat).eq(0).all().item<bool>()) << name_of(format);
  }
}

TEST(Quantized, TilesMayBeLargerThanTheMatrix) {
  const auto layout = QuantizedLayout::of({.format = QuantFormat::fp8, .columns = 1 << 30, .tile_rows = 1 << 30}, 3, 5);
  const at::Tensor bytes = stored_bytes(layout);
  EXPECT_TRUE(decoded(bytes, layout, at::kFloat).equal(decoded(bytes, layout, at::kFloat, true)));
}

TEST(Quantized, PlainWeightsAreKept) {
  const auto layout = QuantizedLayout::of({QuantFormat::fp32}, 3, 5);
  const at::Tensor bytes = at::zeros({layout.bytes}, at::kByte), values = at::randn({15});
  bytes.narrow(0, 0, layout.code_bytes()).copy_(values.view(at::kByte));
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kDouble})
    EXPECT_TRUE(decoded(bytes, layout, type).equal(values.to(type))) << c10::toString(type);
}

TEST(Quantized, TakesTheBytesItPromises) {
  const auto of_bf16 = [](const Quantization& kind) {
    const auto layout = QuantizedLayout::of(kind, 1024, 1024);
    return static_cast<double>(layout.bytes) / (2.0 * 1024 * 1024);
  };
  EXPECT_LE(of_bf16({QuantFormat::nf4, true}), 0.26);
  EXPECT_LE(of_bf16({QuantFormat::fp8}), 0.51);
  EXPECT_LE(of_bf16({QuantFormat::int8}), 0.51);
}

TEST(Quantized, WeightsThatAreNotFiniteAreRefused) {
  at::Tensor values = at::zeros({2, 64});
  values[1][3] = std::numeric_limits<float>::infinity();
  const auto layout = QuantizedLayout::of({QuantFormat::nf4}, 2, 64);
  EXPECT_THROW(quantized(values, layout), Error) << "an infinity";
}

}  // namespace
}  // namespace qft::ops
