#include "qft/core/convert.h"

#include "qft/core/error.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace qft {

float bf16_value(std::uint16_t bits) {
  float value;
  to_float(DType::bf16, &bits, 1, &value);
  return value;
}
std::uint16_t bf16_bits(float value) {
  std::uint16_t bits;
  from_float(DType::bf16, &value, 1, &bits);
  return bits;
}

TEST(Convert, FloatingTypesHaveThePytorchNameAndAShortOne) {
  EXPECT_EQ(torch_name(DType::bf16), "bfloat16");
  EXPECT_EQ(short_name(DType::bf16), "bf16");
  EXPECT_EQ(short_name(DType::f32), "fp32");
  EXPECT_EQ(dtype_from_torch("float16"), DType::f16);
  EXPECT_THROW(short_name(DType::i32), Error);
}

TEST(Convert, EverySixteenBitPatternSurvivesAsAFloat) {
  for (const DType dtype : {DType::f16, DType::bf16})
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
      const auto in = static_cast<std::uint16_t>(bits);
      float value;
      std::uint16_t out;
      to_float(dtype, &in, 1, &value);
      from_float(dtype, &value, 1, &out);
      if (std::isnan(value)) {
        to_float(dtype, &out, 1, &value);
        EXPECT_TRUE(std::isnan(value));
      } else {
        EXPECT_EQ(in, out) << safetensors_name(dtype) << " " << bits;
      }
    }
}

TEST(Convert, RoundsToTheNearestWithTiesToEven) {
  EXPECT_EQ(bf16_bits(1.0F), 0x3F80);
  EXPECT_EQ(bf16_bits(std::bit_cast<float>(0x3F808000U)), 0x3F80);  // halfway between an even and an odd one
  EXPECT_EQ(bf16_bits(std::bit_cast<float>(0x3F818000U)), 0x3F82);
  EXPECT_EQ(bf16_bits(std::bit_cast<float>(0x3F808001U)), 0x3F81);
  EXPECT_EQ(bf16_bits(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_TRUE(std::isnan(bf16_value(bf16_bits(std::bit_cast<float>(0x7F800001U)))));
  const float values[] = {1.0F + 0x1p-11F, 1.0F + 0x1.8p-10F, 65519.0F,       65520.0F,  0x1p-25F,
                          0x1.000002p-25F, 0x1.8p-24F,        0x1.ffffep-15F, -0x1p-24F, -2.0F};
  const std::uint16_t expected[] = {0x3C00, 0x3C02, 0x7BFF, 0x7C00, 0x0000, 0x0001, 0x0002, 0x0400, 0x8001, 0xC000};
  std::uint16_t halves[10];
  from_float(DType::f16, values, 10, halves);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(halves[i], expected[i]) << values[i];
  float back[10];
  to_float(DType::f16, expected, 10, back);
  EXPECT_EQ(back[2], 65504.0F);
  EXPECT_EQ(back[5], 0x1p-24F);
  EXPECT_EQ(back[7], 0x1p-14F);
}

TEST(Convert, ReadsEveryTypeAtAnyAddress) {
  std::vector<char> bytes(17);
  const auto read = [&](DType dtype, auto value) {
    std::memcpy(bytes.data() + 1, &value, sizeof value);
    double result = 0;
    to_double(dtype, bytes.data() + 1, 1, &result);
    return result;
  };
  EXPECT_EQ(read(DType::f64, 0.1), 0.1);
  EXPECT_EQ(read(DType::f32, 0.5F), 0.5);
  EXPECT_EQ(read(DType::i64, std::int64_t{-7}), -7);
  EXPECT_EQ(read(DType::i32, std::int32_t{-7}), -7);
  EXPECT_EQ(read(DType::i16, std::int16_t{-7}), -7);
  EXPECT_EQ(read(DType::i8, std::int8_t{-7}), -7);
  EXPECT_EQ(read(DType::u8, std::uint8_t{200}), 200);
  EXPECT_EQ(read(DType::boolean, true), 1);
  float unused;
  EXPECT_THROW(to_float(DType::i32, bytes.data(), 1, &unused), Error);
}

}  // namespace qft
