#include "qft/io/model_files.h"

#include "qft/core/log.h"

#include <filesystem>
#include <string>

#include "io/temp_dir.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace qft::io {

using test::contains;
using test::error_of;
using test::read_bytes;
using test::TempDir;
using test::write_bytes;

const std::vector<TensorSpec> kTensors = {{"a", DType::u8, {4}}, {"b", DType::u8, {30}}, {"c", DType::u8, {5}},
                                          {"d", DType::u8, {6}}, {"e", DType::u8, {0}},  {"f", DType::u8, {1}}};
const std::string kBytes = "aaaabbbbbbbbbbbbbbbbbbbbbbbbbbbbbbcccccddddddf";

std::vector<std::string> write_model(const TempDir& dir, std::uint64_t max_shard_bytes) {
  ModelWriter writer(posix_storage(), dir.path(), kTensors, max_shard_bytes);
  for (std::size_t i = 0; i < kBytes.size(); i += 7)
    writer.append(kBytes.data() + i, std::min<std::size_t>(7, kBytes.size() - i));
  writer.finish();
  std::vector<std::string> files;
  for (const auto& shard : writer.shards()) {
    files.push_back(shard.file);
    EXPECT_EQ(shard.checksum, hash_file(dir / shard.file));
  }
  return files;
}

void expect_whole(const TempDir& dir) {
  const ModelFiles model = ModelFiles::open(dir.path());
  EXPECT_EQ(model.names(), (std::vector<std::string>{"a", "b", "c", "d", "e", "f"}));
  EXPECT_EQ(model.total_bytes(), 46u);
  for (const std::string& name : model.names()) {
    std::string data(model.at(name).entry->bytes(), ' ');
    model.read(name, 0, data.size(), data.data());
    EXPECT_EQ(data, std::string(data.size(), name[0]));
  }
}

TEST(ModelWriter, ASmallModelIsOneFile) {
  const TempDir dir;
  EXPECT_EQ(write_model(dir, 46), std::vector<std::string>{"model.safetensors"});
  EXPECT_FALSE(std::filesystem::exists(dir / kIndexFile));
  expect_whole(dir);
}

TEST(ModelWriter, SplitsBetweenTensorsAsTheHubDoes) {
  const TempDir dir;
  const auto files = write_model(dir, 11);
  EXPECT_EQ(files, (std::vector<std::string>{"model-00001-of-00004.safetensors", "model-00002-of-00004.safetensors",
                                             "model-00003-of-00004.safetensors", "model-00004-of-00004.safetensors"}));
  const auto index = nlohmann::json::parse(read_bytes(dir / kIndexFile));
  EXPECT_EQ(index["metadata"]["total_size"], 46);
  EXPECT_EQ(index["weight_map"]["b"], files[1]);
  EXPECT_EQ(index["weight_map"]["d"], files[2]);
  EXPECT_EQ(index["weight_map"]["f"], files[3]);
  expect_whole(dir);
}

TEST(ModelWriter, MissingBytesAreAnError) {
  const TempDir dir;
  ModelWriter writer(posix_storage(), dir.path(), kTensors, 11);
  writer.append(kBytes.data(), 20);
  EXPECT_TRUE(contains(error_of([&] { writer.finish(); }), "got 16 bytes of tensors, expected 30"));
  EXPECT_TRUE(contains(error_of([&] { writer.append(kBytes.data(), 46); }), "got 21 more bytes, but its tensors need only 1"));
}

TEST(ModelFiles, ADirectoryWithoutSafetensorsSaysWhatToDo) {
  const TempDir dir;
  EXPECT_TRUE(contains(error_of([&] { ModelFiles::open("Qwen/Qwen2.5-7B"); }), "qft fetch"));
  EXPECT_TRUE(contains(error_of([&] { ModelFiles::open(dir.path()); }), "is the download complete"));
  write_bytes(dir / "x.gguf", "");
  EXPECT_TRUE(contains(error_of([&] { ModelFiles::open(dir.path()); }), "gguf_file='x.gguf'"));
  write_bytes(dir / "pytorch_model.bin", "x");
  EXPECT_TRUE(contains(error_of([&] { ModelFiles::open(dir.path()); }), "pytorch_model.bin': it has no zip end record"));
  write_bytes(dir / "file", "");
  EXPECT_TRUE(contains(error_of([&] { ModelFiles::open(dir / "file"); }), "not a directory"));
}

TEST(ModelFiles, IndexAndShardsMustAgree) {
  const TempDir dir;
  const auto files = write_model(dir, 11);
  const std::string shard = read_bytes(dir / files[2]);
  std::filesystem::remove(dir / files[2]);
  EXPECT_TRUE(contains(error_of([&] { ModelFiles::open(dir.path()); }), files[2] + "', which is missing"));
  write_bytes(dir / files[2], shard.substr(0, shard.size() - 1));
  EXPECT_TRUE(contains(error_of([&] { ModelFiles::open(dir.path()); }), files[2] + "': the file is truncated"));
  write_bytes(dir / files[2], read_bytes(dir / files[1]));
  EXPECT_TRUE(contains(error_of([&] { ModelFiles::open(dir.path()); }), "is in '" + files[2] + "', which does not have it"));
  write_bytes(dir / files[2], shard);
  const ModelFiles model = ModelFiles::open(dir.path());
  EXPECT_TRUE(contains(error_of([&] { model.at("lm_head.weight"); }), "it has 6, such as 'a'"));
}

TEST(ModelFiles, TheIndexSaysWhichShardsCount) {
  const TempDir dir;
  const auto files = write_model(dir, 11);
  // Left over from a model with more shards.
  write_bytes(dir / "model-00005-of-00009.safetensors", read_bytes(dir / files[0]));
  auto index = nlohmann::json::parse(read_bytes(dir / kIndexFile));
  ASSERT_EQ(index["weight_map"]["a"], files[0]);
  log::init({});
  testing::internal::CaptureStderr();
  expect_whole(dir);
  EXPECT_TRUE(contains(testing::internal::GetCapturedStderr(), "00005-of-00009.safetensors in the same folder is not read"));
  EXPECT_EQ(weight_files(dir.path()).size(), files.size());
  write_bytes(dir / kIndexFile, "{broken");
  EXPECT_EQ(weight_files(dir.path()).size(), files.size() + 1) << "nothing says which one is old";
}

TEST(ModelFiles, ATensorInTwoShardsIsTheOneThatTheIndexNames) {
  const TempDir dir;
  const auto write = [&](const std::string& name, const std::vector<TensorSpec>& tensors, const std::string& bytes) {
    SafetensorsWriter writer(posix_storage(), dir / name, tensors);
    writer.append(bytes.data(), bytes.size());
    writer.finish();
  };
  write("model-00001-of-00002.safetensors", {{"a", DType::u8, {2}}, {"b", DType::u8, {1}}}, "old");
  write("model-00002-of-00002.safetensors", {{"a", DType::u8, {2}}}, "ab");
  write_bytes(dir / kIndexFile,
              R"({"weight_map": {"a": "model-00002-of-00002.safetensors", "b": "model-00001-of-00002.safetensors"}})");
  std::string a(2, ' ');
  const ModelFiles model = ModelFiles::open(dir.path());
  model.read("a", 0, 2, a.data());
  EXPECT_EQ(a, "ab");
  EXPECT_EQ(model.total_bytes(), 3u);
}

TEST(ModelFiles, ASecondCopyOfTheWeightsIsTold) {
  const TempDir dir;
  write_model(dir, 46);
  log::init({});
  const auto told = [&] {
    testing::internal::CaptureStderr();
    ModelFiles::open(dir.path());
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(told(), "");
  write_bytes(dir / "pytorch_model.bin", "x");
  EXPECT_TRUE(contains(told(), "read from model.safetensors; pytorch_model.bin in the same folder is not read"));
  EXPECT_EQ(told(), "") << "once";
  write_bytes(dir / "consolidated.safetensors", "x");
  EXPECT_TRUE(contains(told(), "consolidated.safetensors and 1 more in the same folder are not read"));
}

TEST(ModelFiles, AnIndexMayNotLeaveItsDirectoryOrNameWhatIsNotThere) {
  const TempDir dir;
  const auto files = write_model(dir, 11);
  const auto refuse = [&](const std::string& weight_map, const std::string& message) {
    write_bytes(dir / kIndexFile, "{\"weight_map\":" + weight_map + "}");
    EXPECT_TRUE(contains(error_of([&] { ModelFiles::open(dir.path()); }), message));
  };
  for (const char* name : {"../x.safetensors", "/etc/passwd", "sub/x", "..", "", "a\\\\b", "a\\u0000b"})
    refuse("{\"a\":\"" + std::string(name) + "\"}", "only plain file names");
  refuse("{\"a\":5}", "is not a text");
  refuse("[]", "no object \"weight_map\"");
  refuse("{\"zz\":\"" + files[0] + "\"}", "tensor 'zz' is in '" + files[0] + "', which does not have it");
  write_bytes(dir / kIndexFile, "{broken");
  EXPECT_TRUE(contains(error_of([&] { ModelFiles::open(dir.path()); }), "index.json' is not valid JSON"));
  write_bytes(dir / kIndexFile, std::string(100000, '['));
  EXPECT_TRUE(contains(error_of([&] { ModelFiles::open(dir.path()); }), "nested more than 64 deep"));
}

TEST(ModelFiles, LinksLeadIntoTheHubsCacheAndNowhereElse) {
  const TempDir dir;
  const TempDir weights;
  write_model(weights, 46);
  const std::filesystem::path snapshot = dir / "models--a--b/snapshots/abc", plain = dir / "mine";
  std::filesystem::create_directories(snapshot);
  std::filesystem::create_directories(plain);
  write_bytes(dir / "models--a--b/blobs/0123", read_bytes(weights / kSingleFile));
  std::filesystem::create_symlink("../../blobs/0123", snapshot / kSingleFile);
  EXPECT_EQ(ModelFiles::open(snapshot).size(), 6u);
  std::filesystem::create_symlink(weights / kSingleFile, plain / kSingleFile);
  EXPECT_TRUE(contains(error_of([&] { ModelFiles::open(plain); }), "outside its directory"));
  std::filesystem::create_directory_symlink(weights.path(), dir / "link");
  EXPECT_EQ(ModelFiles::open(dir / "link").size(), 6u);
}

}  // namespace qft::io
