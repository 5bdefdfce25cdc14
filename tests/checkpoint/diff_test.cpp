#include "qft/checkpoint/diff.h"

#include "qft/checkpoint/reshard.h"
#include "qft/io/safetensors.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "checkpoint/sample.h"
#include "io/temp_dir.h"
#include <gtest/gtest.h>

namespace qft::checkpoint {

namespace fs = std::filesystem;
using test::contains;
using test::error_of;
using test::TempDir;
using test::write_bytes;

template <class T>
void write_tensor(const fs::path& dir, const std::string& name, DType dtype, const std::vector<T>& values,
                  std::vector<std::int64_t> shape = {}) {
  fs::create_directories(dir);
  if (shape.empty()) shape = {static_cast<std::int64_t>(values.size())};
  io::SafetensorsWriter writer(io::posix_storage(), dir / (name + ".safetensors"), {{name, dtype, shape}});
  writer.append(values.data(), values.size() * sizeof(T));
  writer.finish();
}

fs::path save(const fs::path& dir, const nlohmann::json& state, int version = 1) {
  const auto comm = comm::make_self_communicator();
  SaveOptions options;
  options.output_dir = dir;
  options.step = 7;
  CheckpointWriter writer(*comm, io::posix_storage(), options);
  std::vector<std::string> bytes;
  writer.write_slices(test::sample_slices<HostSlice>(0, 1, version, bytes));
  return writer.commit(state);
}

std::vector<std::string> keys(const std::vector<ValueDifference>& values) {
  std::vector<std::string> result;
  for (const ValueDifference& v : values) result.push_back(v.key);
  return result;
}

TEST(Diff, MeasuresATensorElementByElement) {
  const TempDir dir;
  write_tensor<float>(dir / "a", "w", DType::f32, {1, 2, 3, 0});
  write_tensor<float>(dir / "b", "w", DType::f32, {1, 2.5, 3, -1});
  const Difference d = diff(dir / "a", dir / "b");
  ASSERT_EQ(d.tensors.size(), 1u);
  EXPECT_EQ(d.tensors[0].changed, 2u);
  EXPECT_EQ(d.tensors[0].max_abs, 1);
  EXPECT_DOUBLE_EQ(d.tensors[0].relative, std::sqrt(1.25 / 14));
  EXPECT_FALSE(d.equal());
  EXPECT_TRUE(contains(format_difference(d, 5), "tensors in both: 1, of which 1 differ"));
  EXPECT_EQ(to_json(d)["tensors"][0]["changed"], 2);
}

TEST(Diff, AnotherElementTypeOrShapeIsADifference) {
  const TempDir dir;
  write_tensor<float>(dir / "a", "w", DType::f32, {1, 2, 3, 4});
  write_tensor<std::uint16_t>(dir / "b", "w", DType::bf16, {0x3F80, 0x4000, 0x4040, 0x4080});
  write_tensor<float>(dir / "c", "w", DType::f32, {1, 2, 3, 4}, {2, 2});
  const Difference types = diff(dir / "a", dir / "b");
  EXPECT_EQ(types.tensors[0].changed, 0u);
  EXPECT_FALSE(types.equal());
  EXPECT_TRUE(contains(format_difference(types, 5), "w: F32 [4] -> BF16 [4]"));
  const Difference shapes = diff(dir / "a", dir / "c");
  EXPECT_FALSE(shapes.equal());
  EXPECT_TRUE(contains(format_difference(shapes, 5), "w: F32 [4] -> F32 [2, 2]"));
  EXPECT_FALSE(to_json(shapes)["tensors"][0].contains("max_abs"));
}

TEST(Diff, SeesNotANumberAndIntegersThatDoublesCannotTellApart) {
  const TempDir dir;
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  write_tensor<float>(dir / "a", "w", DType::f32, {1, kNan});
  write_tensor<float>(dir / "b", "w", DType::f32, {1, 2});
  EXPECT_TRUE(diff(dir / "a", dir / "a").identical());
  const Difference d = diff(dir / "a", dir / "b");
  EXPECT_EQ(d.tensors[0].changed, 1u);
  EXPECT_TRUE(std::isinf(d.tensors[0].max_abs));
  EXPECT_EQ(to_json(d)["tensors"][0]["max_abs"], "inf");
  constexpr std::int64_t kBig = std::int64_t{1} << 53;
  write_tensor<std::int64_t>(dir / "c", "n", DType::i64, {kBig});
  write_tensor<std::int64_t>(dir / "d", "n", DType::i64, {kBig + 1});
  EXPECT_FALSE(diff(dir / "c", dir / "d").equal());
}

TEST(Diff, ListsWhatOnlyOneSideHas) {
  const TempDir dir;
  write_tensor<float>(dir / "a", "w", DType::f32, {1});
  write_tensor<float>(dir / "a", "x", DType::f32, {1});
  write_tensor<float>(dir / "b", "w", DType::f32, {1});
  write_tensor<float>(dir / "b", "y", DType::f32, {1});
  const Difference d = diff(dir / "a", dir / "b");
  EXPECT_EQ(d.only_a, std::vector<std::string>{"x"});
  EXPECT_EQ(d.only_b, std::vector<std::string>{"y"});
  EXPECT_FALSE(d.equal());
  EXPECT_TRUE(contains(format_difference(d, 5), "only in A: 1 tensors: x"));
}

TEST(Diff, RanksAndStrategyDoNotMakeCheckpointsDifferent) {
  const TempDir dir;
  const fs::path one = save(dir / "one", {{"strategy", "ddp"}, {"data", {{"epoch", 1}}}});
  for (const int ranks : {2, 3, 7}) {
    const fs::path many = dir / std::to_string(ranks);
    reshard(io::posix_storage(), one, many, ranks);
    const Difference d = diff(one, many);
    EXPECT_TRUE(d.equal());
    EXPECT_FALSE(d.identical());
    EXPECT_EQ(keys(d.layout), std::vector<std::string>{"world_size"});
  }
  EXPECT_TRUE(diff(one, save(dir / "again", {{"strategy", "ddp"}, {"data", {{"epoch", 1}}}})).identical());
  EXPECT_FALSE(diff(one, save(dir / "other", {{"strategy", "ddp"}, {"data", {{"epoch", 1}}}}, 2)).equal());
}

TEST(Diff, ThePositionCountsTimeAndSettingsDoNot) {
  const TempDir dir;
  const auto state = [](int sample, double seconds, const char* output) {
    return nlohmann::json{{"data", {{"epoch", 1}, {"sample", sample}}},
                          {"progression", {{"step", 7}, {"elapsed_seconds", seconds}, {"exchange_seconds", seconds}}},
                          {"config", {{"output_dir", output}, {"seed", 1}}}};
  };
  const fs::path base = save(dir / "base", state(5, 1.0, "x"));
  EXPECT_TRUE(diff(base, save(dir / "slow", state(5, 2.0, "x"))).identical());
  const Difference settings = diff(base, save(dir / "settings", state(5, 1.0, "y")));
  EXPECT_TRUE(settings.equal());
  EXPECT_EQ(keys(settings.configuration), std::vector<std::string>{"config.output_dir"});
  const Difference moved = diff(base, save(dir / "moved", state(6, 1.0, "x")));
  EXPECT_FALSE(moved.equal());
  EXPECT_EQ(keys(moved.position), std::vector<std::string>{"data.sample"});
  EXPECT_TRUE(contains(format_difference(moved, 5), "data.sample"));
}

TEST(Diff, WhatChangesAnAdaptersOutputCounts) {
  const TempDir dir;
  const auto adapter = [&](const char* name, const std::string& config) {
    write_tensor<float>(dir / name, "w", DType::f32, {1});
    write_bytes(dir / name / "adapter_config.json", config);
    return dir / name;
  };
  const fs::path base = adapter("a", R"({"r": 8, "lora_alpha": 16, "target_modules": ["q", "v"], "revision": null})");
  EXPECT_TRUE(diff(base, adapter("b", R"({"r": 8, "lora_alpha": 16, "target_modules": ["v", "q"],
                                          "base_model_name_or_path": "elsewhere"})"))
                  .identical());
  const Difference scaled = diff(base, adapter("c", R"({"r": 8, "lora_alpha": 32, "target_modules": ["q", "v"]})"));
  EXPECT_FALSE(scaled.equal());
  EXPECT_EQ(keys(scaled.model), std::vector<std::string>{"lora_alpha"});
}

TEST(Diff, RefusesWhatItCannotRead) {
  const TempDir dir;
  write_tensor<float>(dir / "a", "w", DType::f32, {1});
  fs::create_directories(dir / "empty");
  EXPECT_TRUE(contains(error_of([&] { diff(dir / "a", dir / "none"); }), "does not exist"));
  EXPECT_TRUE(contains(error_of([&] { diff(dir / "a", dir / "empty"); }), "holds no tensors"));
  write_bytes(dir / "bad/w.safetensors", "12345678901234567890");
  EXPECT_TRUE(contains(error_of([&] { diff(dir / "a", dir / "bad"); }), "not a safetensors file"));
}

}  // namespace qft::checkpoint
