#include "qft/io/safetensors.h"

#include <cstring>
#include <numeric>
#include <string>

#include "io/temp_dir.h"
#include <gtest/gtest.h>

namespace qft::io {

using test::contains;
using test::error_of;
using test::read_bytes;
using test::TempDir;
using test::write_bytes;

std::string with_length(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + data;
}

struct Malformed {
  const char* what;
  std::string bytes;
  const char* message;
};

class MalformedSafetensors : public testing::TestWithParam<Malformed> {};

TEST_P(MalformedSafetensors, IsRefusedWithTheFileAndTheReason) {
  const TempDir dir;
  write_bytes(dir / "m.safetensors", GetParam().bytes);
  const std::string message = error_of([&] { SafetensorsFile::open(dir / "m.safetensors"); });
  EXPECT_TRUE(contains(message, (dir / "m.safetensors").string()));
  EXPECT_TRUE(contains(message, GetParam().message));
}

const std::string kData(16, 'd');
const std::string kGood = R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})";

std::string swapped(const std::string& from, const std::string& to) {
  std::string text = kGood;
  return text.replace(text.find(from), from.size(), to);
}

const Malformed kCases[] = {
    {"empty", "", "it has 0 bytes"},
    {"seven_bytes", "1234567", "it has 7 bytes"},
    {"huge_length", std::string(8, '\xff') + kGood, "more than 100000000"},
    {"lfs_pointer", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n",
     "is a Git LFS pointer, not the file itself: run 'git lfs pull'"},
    {"length_past_the_end", with_length(kGood, "").substr(0, 30), "truncated"},
    {"no_brace", with_length(" " + kGood, kData), "does not start with '{'"},
    {"empty_header", with_length("", kData), "does not start with '{'"},
    {"array", with_length("[]", ""), "does not start with '{'"},
    {"cut_json", with_length(kGood.substr(0, kGood.size() - 1), kData), "not valid JSON"},
    {"trailing_text", with_length(kGood + "x", kData), "not valid JSON"},
    {"bad_utf8", with_length(swapped("\"a\"", "\"\xc3\x28\""), kData), "not valid JSON"},
    {"deep_objects", with_length("{\"a\":" + std::string(100000, '{'), ""), "not valid JSON"},
    {"deep_keys", with_length(R"({"a":{"dtype":{"x":{}}}})", ""), "nested too deeply"},
    {"deep_arrays", with_length(R"({"a":{"shape":[[[[)" + std::string(100000, '['), ""), "unexpected array in 'a'"},
    {"array_of_tensors", with_length(R"({"a":[1]})", ""), "unexpected array in 'a'"},
    {"duplicate_tensor",
     with_length(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"a":{"dtype":"U8","shape":[8],"data_offsets":[8,16]}})",
                 kData),
     "names 'a' twice"},
    {"duplicate_key", with_length(swapped("\"shape\":[4]", "\"shape\":[4],\"shape\":[4]"), kData), "repeats the key 'shape'"},
    {"unknown_dtype", with_length(swapped("F32", "F8_E5M2"), kData), "tensor 'a': dtype 'F8_E5M2'"},
    {"no_dtype", with_length(swapped("\"dtype\":\"F32\",", ""), kData), "has no dtype"},
    {"no_shape", with_length(swapped("\"shape\":[4],", ""), kData), "has no shape"},
    {"no_offsets", with_length(swapped(",\"data_offsets\":[0,16]", ""), kData), "has no data_offsets"},
    {"more_keys", with_length(swapped("\"shape\"", "\"sha\":\"x\",\"shape\""), kData), "text for 'sha'"},
    {"one_offset", with_length(swapped("[0,16]", "[0]"), kData), "1 data_offsets"},
    {"three_offsets", with_length(swapped("[0,16]", "[0,16,32]"), kData), "3 data_offsets"},
    {"negative_dimension", with_length(swapped("[4]", "[-4]"), kData), "unexpected -4 in 'a'"},
    {"fractional_dimension", with_length(swapped("[4]", "[4.5]"), kData), "unexpected 4.5 in"},
    {"dimension_above_2_63", with_length(swapped("[4]", "[9223372036854775808]"), kData), "a dimension of 9223372036854775808"},
    {"dimension_above_2_64", with_length(swapped("[4]", "[36893488147419103232]"), kData), "in 'a'"},
    {"product_overflows", with_length(swapped("[4]", "[4294967296,4294967297]"), kData), "exceeds 2^64"},
    {"product_overflows_to_small", with_length(swapped("[4]", "[4611686018427387905]"), kData), "exceeds 2^64"},
    {"shape_too_small", with_length(swapped("[4]", "[3]"), kData), "needs 12 bytes"},
    {"backward_offsets", with_length(swapped("[0,16]", "[16,0]"), kData), "data_offsets [16, 0]"},
    {"hole_at_start", with_length(swapped("[4]", "[2]").replace(swapped("[4]", "[2]").find("[0,16]"), 6, "[8,16]"), kData),
     "starts at data byte 8, but the one before ends at 0"},
    {"overlap",
     with_length(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[12],"data_offsets":[4,16]}})",
                 kData),
     "tensor 'b' starts at data byte 4"},
    {"truncated_data", with_length(kGood, kData.substr(1)), "is truncated: its tensors need 16 bytes of data, it has 15"},
    {"surplus_data", with_length(kGood, kData + "x"), "17 bytes of data, but its tensors only 16"},
    {"offset_past_2_63", with_length(swapped("[0,16]", "[18446744073709551600,18446744073709551615]"), kData), "needs 16 bytes"},
    {"metadata_not_text", with_length(R"({"__metadata__":{"a":1}})", ""), "unexpected 1 in '__metadata__'"},
    {"metadata_nested", with_length(R"({"__metadata__":{"a":{}}})", ""), "nested too deeply"},
    {"metadata_is_text", with_length(R"({"__metadata__":"x"})", ""), "unexpected text in '__metadata__'"},
    {"null_tensor", with_length(R"({"a":null})", ""), "unexpected null in 'a'"},
};

INSTANTIATE_TEST_SUITE_P(Table, MalformedSafetensors, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.what); });

TEST(Safetensors, FilesInAnyHeaderOrderAndWithPaddingAreRead) {
  const TempDir dir;
  write_bytes(
      dir / "m",
      with_length(
          R"({"__metadata__":{"format":"pt"},"b":{"dtype":"I16","shape":[2,1],"data_offsets":[4,8]},)"
          R"("e":{"dtype":"F32","shape":[0,7],"data_offsets":[4,4]},"s":{"data_offsets":[0,4],"dtype":"F32","shape":[]}}   )",
          "ssssbbbb"));
  const auto file = SafetensorsFile::open(dir / "m");
  EXPECT_EQ(file.metadata().at("format"), "pt");
  ASSERT_EQ(file.entries().size(), 3u);
  EXPECT_EQ(file.entries()[0].name, "s");
  EXPECT_EQ(file.entries()[1].name, "e");
  EXPECT_EQ(file.at("b").shape, (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(file.find("c"), nullptr);
  EXPECT_TRUE(contains(error_of([&] { file.at("c"); }), "no tensor 'c'"));
  std::string got(3, ' ');
  file.read(file.at("b"), 1, 3, got.data());
  EXPECT_EQ(got, "bbb");
  const Mapping map = file.map(file.at("s"));
  EXPECT_EQ(std::memcmp(map.data(), "ssss", 4), 0);
  EXPECT_TRUE(contains(error_of([&] { file.read(file.at("b"), 2, 3, got.data()); }), "[2, 5) of tensor 'b' requested, it has 4"));
  EXPECT_TRUE(contains(error_of([&] { file.read(file.at("b"), ~0ull, 1, got.data()); }), "it has 4"));
}

TEST(Safetensors, WhatTheWriterWritesTheReaderReads) {
  const TempDir dir;
  std::vector<float> a(1000);
  std::iota(a.begin(), a.end(), 0.f);
  const std::vector<std::int64_t> b{1, -2, 3};
  SafetensorsWriter writer(posix_storage(), dir / "m",
                           {{"a", DType::f32, {10, 100}}, {"b", DType::i64, {3}}, {"empty", DType::f16, {0}}},
                           {{"format", "pt"}, {"by", "a \"test\""}});
  writer.append(a.data(), 1234);
  writer.append(reinterpret_cast<const char*>(a.data()) + 1234, 4000 - 1234);
  writer.append(b.data(), 24);
  writer.finish();
  EXPECT_EQ(writer.file_bytes(), std::filesystem::file_size(dir / "m"));
  EXPECT_EQ(writer.checksum(), hash_file(dir / "m"));
  const auto file = SafetensorsFile::open(dir / "m");
  EXPECT_EQ(file.metadata().at("by"), "a \"test\"");
  EXPECT_EQ(file.at("a").file_offset % 8, 0u);
  std::vector<float> got(1000);
  file.read(file.at("a"), 0, 4000, got.data());
  EXPECT_EQ(got, a);
  EXPECT_EQ(file.at("empty").bytes(), 0u);
}

TEST(Safetensors, TheWriterRefusesWhatDoesNotFitItsAnnouncement) {
  const TempDir dir;
  const auto make = [&](std::vector<TensorSpec> tensors) {
    return SafetensorsWriter(posix_storage(), dir / "m", std::move(tensors));
  };
  EXPECT_TRUE(contains(error_of([&] { make({{"a", DType::u8, {1}}, {"a", DType::u8, {1}}}); }), "given twice"));
  EXPECT_TRUE(contains(error_of([&] { make({{"a", DType::u8, {-1}}}); }), "a dimension of -1"));
  EXPECT_TRUE(contains(error_of([&] { make({{"__metadata__", DType::u8, {1}}}); }), "cannot be called"));
  EXPECT_TRUE(contains(error_of([&] { make({{"\xc3\x28", DType::u8, {1}}}); }), "not UTF-8"));
  auto writer = make({{"a", DType::u8, {4}}});
  writer.append("123", 3);
  EXPECT_TRUE(contains(error_of([&] { writer.finish(); }), "got 3 bytes of tensors, expected 4"));
  EXPECT_TRUE(contains(error_of([&] { writer.append("45", 2); }), "got 2 more bytes, but its tensors need only 1"));
}

TEST(Safetensors, EveryFlippedHeaderByteIsRefusedOrReadAsAnotherValidHeader) {
  const TempDir dir;
  {
    SafetensorsWriter writer(posix_storage(), dir / "m", {{"layer.weight", DType::bf16, {2, 3}}, {"b", DType::u8, {4}}});
    writer.append("0123456789abcdef", 16);
    writer.finish();
  }
  const std::string good = read_bytes(dir / "m");
  for (std::size_t i = 0; i < good.size(); ++i)
    for (const int bit : {0, 3, 7}) {
      std::string bytes = good;
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
      write_bytes(dir / "m", bytes);
      try {
        const auto file = SafetensorsFile::open(dir / "m");
        std::uint64_t total = 0;
        for (const TensorEntry& entry : file.entries()) {
          std::string data(entry.bytes(), ' ');
          file.read(entry, 0, data.size(), data.data());
          total += data.size();
        }
        EXPECT_EQ(total, 16u);
      } catch (const Error&) {
      }
    }
  for (std::size_t n = 0; n < good.size(); ++n) {
    write_bytes(dir / "m", good.substr(0, n));
    EXPECT_THROW(SafetensorsFile::open(dir / "m"), Error) << n << " bytes";
  }
}

}  // namespace qft::io
