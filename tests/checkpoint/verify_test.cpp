#include "qft/checkpoint/verify.h"

#include "qft/checkpoint/inspect.h"
#include "qft/io/model_files.h"

#include <filesystem>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "checkpoint/sample.h"
#include "io/temp_dir.h"
#include <gtest/gtest.h>

namespace qft::checkpoint {

namespace fs = std::filesystem;
using test::contains;
using test::error_of;
using test::read_bytes;
using test::TempDir;
using test::write_bytes;

fs::path save(const TempDir& dir) {
  const auto comm = comm::make_self_communicator();
  SaveOptions options;
  options.output_dir = dir.path();
  options.step = 7;
  return test::save_sample(*comm, io::posix_storage(), options, 1);
}

TEST(Verify, AcceptsWhatWasJustWritten) {
  const TempDir dir;
  const VerifyReport report = verify(save(dir));
  EXPECT_TRUE(report.ok()) << report.errors.front();
  EXPECT_TRUE(report.warnings.empty());
  EXPECT_TRUE(report.has_manifest);
  EXPECT_EQ(report.files, 3u);
  EXPECT_EQ(report.tensors, 5u);
}

TEST(Verify, NamesTensorsWithValuesThatAreNoNumbers) {
  const TempDir dir;
  const auto comm = comm::make_self_communicator();
  const fs::path path = [&] {
    CheckpointWriter writer(*comm, io::posix_storage(),
                            {.output_dir = dir.path(), .step = 3, .save_total_limit = {}, .best_checkpoint = {}});
    constexpr float kInfinite = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> good(5, 1.0F), bad = {0, kNan, 2, -kInfinite, kNan};
    std::vector<std::int64_t> all_bits(3, -1);
    writer.write_slices(std::vector<HostSlice>{{test::whole_slice("good", DType::f32, {5}), good.data()},
                                               {test::whole_slice("bad", DType::f32, {5}), bad.data()},
                                               {test::whole_slice("whole", DType::i64, {3}), all_bits.data()}});
    return writer.commit({});
  }();
  VerifyReport report = verify(path);
  ASSERT_TRUE(report.ok());
  find_non_finite(path, report);
  EXPECT_TRUE(report.ok());
  ASSERT_EQ(report.not_finite.size(), 1U);
  EXPECT_EQ(report.not_finite[0].nan, 2U);
  EXPECT_EQ(report.not_finite[0].infinite, 1U);
  EXPECT_TRUE(contains(report.warnings.at(0), "tensor 'bad' has 2 NaN and 1 infinite values of 5"));
  EXPECT_EQ(to_json(path, report)["not_finite"][0]["tensor"], "bad");
}

TEST(Verify, SeesEveryFlippedBitAndEveryTruncation) {
  const TempDir dir;
  const fs::path path = save(dir);
  for (const char* name : {"qft_state-00000-of-00001.safetensors", "trainer_state.json", "adapter_config.json"}) {
    const std::string good = read_bytes(path / name);
    for (std::size_t i = 0; i < good.size(); i += 13) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
      write_bytes(path / name, bad);
      EXPECT_TRUE(contains(verify(path).errors.at(0), name));
      write_bytes(path / name, good.substr(0, i));
      EXPECT_TRUE(contains(verify(path).errors.at(0), "the manifest says"));
    }
    fs::remove(path / name);
    EXPECT_TRUE(contains(verify(path).errors.at(0), "No such file"));
    write_bytes(path / name, good);
  }
  EXPECT_TRUE(verify(path).ok());
}

TEST(Verify, SeesEveryOneOfTenThousandRandomDamages) {
  const TempDir dir;
  const fs::path path = save(dir);
  std::vector<fs::path> files;
  std::vector<std::string> contents;
  std::vector<double> sizes;
  for (const auto& item : fs::directory_iterator(path)) {
    files.push_back(item.path());
    contents.push_back(read_bytes(item.path()));
    sizes.push_back(static_cast<double>(contents.back().size()));
  }
  std::mt19937 random(1);
  std::discrete_distribution<std::size_t> pick(sizes.begin(), sizes.end());
  for (int round = 0; round < 10000; ++round) {
    const std::size_t f = pick(random);
    const std::size_t at = std::uniform_int_distribution<std::size_t>(0, contents[f].size() - 1)(random);
    std::string bad = contents[f];
    if (round % 5 == 0)
      bad.resize(at);
    else
      bad[at] = static_cast<char>(bad[at] ^ (1 << (round % 8)));
    write_bytes(files[f], bad);
    EXPECT_FALSE(verify(path).ok()) << files[f] << " byte " << at << " round " << round;
    write_bytes(files[f], contents[f]);
  }
  EXPECT_TRUE(verify(path).ok());
}

TEST(Verify, RefusesLinksOutOfTheDirectory) {
  const TempDir dir;
  const fs::path path = save(dir);
  fs::rename(path / "trainer_state.json", dir / "elsewhere.json");
  fs::create_symlink("../elsewhere.json", path / "trainer_state.json");
  EXPECT_TRUE(contains(verify(path).errors.at(0), "outside its directory"));
}

TEST(Verify, ReportsFilesThatNoManifestLists) {
  const TempDir dir;
  const fs::path path = save(dir);
  write_bytes(path / "notes.txt", "mine");
  const VerifyReport report = verify(path);
  EXPECT_TRUE(report.ok());
  EXPECT_TRUE(contains(report.warnings.at(0), "notes.txt' is not in the manifest"));
}

TEST(Verify, HoldsTheManifestAgainstTheTensorsInItsFiles) {
  const TempDir dir;
  const fs::path path = save(dir);
  Manifest manifest = Manifest::read(path);
  for (TensorRecord& tensor : manifest.tensors)
    if (tensor.name == "tiny") {
      tensor.shape = {1};
      tensor.boxes[0].box = Box::whole({1});
      tensor.boxes[0].ranges[0].end = 1;
    }
  write_bytes(path / kManifestFile, manifest.to_text());
  EXPECT_TRUE(contains(verify(path).errors.at(0), "entry 'tiny' has 2 elements of I64, the manifest says 1 of I64"));
}

TEST(Verify, SharesCoverEveryFileOnce) {
  const TempDir dir;
  const fs::path path = save(dir);
  const std::string good = read_bytes(path / "trainer_state.json");
  std::string bad = good;
  bad[3] = static_cast<char>(bad[3] ^ 1);
  write_bytes(path / "trainer_state.json", bad);
  for (int parts = 1; parts <= 5; ++parts) {
    int found = 0;
    for (int part = 0; part < parts; ++part) found += verify_share(path, part, parts).ok() ? 0 : 1;
    EXPECT_EQ(found, 1) << parts << " parts";
  }
}

TEST(Verify, ChecksWhatItCanWithoutAManifest) {
  const TempDir dir;
  EXPECT_TRUE(contains(verify(dir.path()).errors.at(0), "neither manifest.json nor weight files"));
  EXPECT_TRUE(contains(error_of([&] { verify(dir / "none"); }), "does not exist"));
  io::ModelWriter writer(io::posix_storage(), dir.path(), {{"a", DType::u8, {4}}, {"b", DType::bf16, {3, 2}}}, 6);
  writer.append("0123456789abcdef", 16);
  writer.finish();
  write_bytes(dir / "config.json", R"({"architectures": ["Qwen3ForCausalLM"]})");
  VerifyReport report = verify(dir.path());
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(report.tensors, 2u);
  EXPECT_TRUE(contains(report.warnings.at(0), "has no manifest.json"));
  const auto summary = summarize(dir.path());
  EXPECT_EQ(summary["kind"], "Hugging Face model");
  EXPECT_EQ(summary["parameters"], 10);
  EXPECT_EQ(summary["architecture"], "Qwen3ForCausalLM");
  EXPECT_TRUE(contains(format_summary(summary), "none: written by another program"));

  write_bytes(dir / "config.json", "{");
  EXPECT_TRUE(contains(verify(dir.path()).errors.at(0), "config.json' is not valid JSON"));
  write_bytes(dir / "config.json", "{}");
  fs::remove(dir / writer.shards()[1].file);
  report = verify(dir.path());
  ASSERT_EQ(report.errors.size(), 1u);
  EXPECT_TRUE(contains(report.errors[0], "which is missing"));
}

TEST(Inspect, SaysWhatACheckpointIs) {
  const TempDir dir;
  const auto summary = summarize(save(dir));
  EXPECT_EQ(summary["kind"], "qft checkpoint");
  EXPECT_EQ(summary["step"], 7);
  EXPECT_EQ(summary["epoch"], 0.5);
  EXPECT_EQ(summary["loss"], 1.25);
  EXPECT_EQ(summary["world_size"], 1);
  EXPECT_EQ(summary["strategy"], "zero2");
  EXPECT_EQ(summary["base_model"], "models/qwen");
  EXPECT_EQ(summary["adapter"]["rank"], 8);
  EXPECT_EQ(summary["adapter"]["targets"].dump(), R"(["q_proj","v_proj"])");
  EXPECT_EQ(summary["tensors"], 5);
  EXPECT_EQ(summary["parameters"], 2 * 185 + 3);
  const std::string text = format_summary(summary);
  for (const char* part : {"checkpoint-7", "step          7", "written by    1 rank",
                           "LORA; rank 8; alpha 16; targets q_proj, v_proj", "qft_state-00000-of-00001.safetensors"})
    EXPECT_TRUE(contains(text, part));
}

TEST(Inspect, DamagedSidecarsDoNotStopIt) {
  const TempDir dir;
  const fs::path path = save(dir);
  write_bytes(path / "trainer_state.json", "[1, 2");
  write_bytes(path / "adapter_config.json", R"({"r": null, "target_modules": "all-linear", "lora_alpha": "x"})");
  const auto summary = summarize(path);
  EXPECT_FALSE(summary.contains("loss"));
  EXPECT_EQ(summary["adapter"]["targets"], "all-linear");
  EXPECT_TRUE(contains(format_summary(summary), "all-linear"));
  EXPECT_TRUE(contains(error_of([&] { summarize(dir.path()); }), "is not a checkpoint, adapter or model"));
}

}  // namespace qft::checkpoint
