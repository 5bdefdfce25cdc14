#include "inputs/candidates.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include <gtest/gtest.h>

namespace qft::inputs {
namespace {

namespace fs = std::filesystem;

class Candidates : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "qft-candidates-XXXXXX").string();
    root_ = mkdtemp(name.data());
    fs::create_directories(root_ / "data");
    std::ofstream(root_ / "data/dataset_info.json") << R"({"raw": {"file_name": "raw.jsonl"}})";
    std::ofstream(root_ / "data/raw.jsonl") << R"({"instruction": "1", "output": "2"})"
                                            << "\n";
    config_.data.dataset_dir = (root_ / "data").string();
  }
  void TearDown() override { fs::remove_all(root_); }

  /// Returns the number of files to copy, by key.
  std::map<std::string, std::size_t> items() const {
    std::map<std::string, std::size_t> found;
    for (const Candidate& candidate : candidates(config_, config::Purpose::pack))
      if (const StagedItem item = item_of(config_, candidate); !item.files.empty()) found[candidate.key] = item.files.size();
    return found;
  }

  fs::path root_;
  config::RunConfig config_;
};

TEST_F(Candidates, AreNoFoldersThatHaveTheNameOfAnEntry) {
  const fs::path before = fs::current_path();
  fs::current_path(root_);
  fs::create_directories("raw");
  std::ofstream("raw/other.jsonl") << "{}\n";
  config_.data.dataset = {"raw"};
  EXPECT_EQ(items(), (std::map<std::string, std::size_t>{{config_.data.dataset_dir, 2}}));
  fs::current_path(before);
}

TEST_F(Candidates, ArePathsWithANumberOfRecordsOrAHashInTheirNames) {
  const std::string plain = (root_ / "plain.jsonl").string(), odd = (root_ / "a#b.jsonl").string();
  for (const auto& path : {plain, odd})
    std::ofstream(path) << R"({"instruction": "1", "output": "2"})"
                        << "\n";
  config_.data.dataset = {plain + "#1", odd};
  const auto found = items();
  EXPECT_TRUE(found.contains(plain));
  EXPECT_TRUE(found.contains(odd));
}

TEST_F(Candidates, HaveNoFilesOfQftsOwn) {
  fs::create_directories(root_ / "pack");
  for (const char* name : {"train.h5", ".qft-staged.json", ".qft-fetch.json"}) std::ofstream(root_ / "pack" / name) << "{}";
  config_.data.pack = (root_ / "pack").string();
  config_.data.dataset.clear();
  EXPECT_EQ(items()[config_.data.pack], 1U);
}

TEST_F(Candidates, AreReadForTheStage) {
  std::ofstream(root_ / "data/pairs.jsonl") << R"({"anchor": "1", "positive": "2"})"
                                            << "\n";
  config_.data.dataset = {(root_ / "data/pairs.jsonl").string()};
  config_.finetuning.stage = "embedding";
  config_.given["stage"] = "the test";
  EXPECT_EQ(items()[config_.data.dataset_dir], 2U);
}

}  // namespace
}  // namespace qft::inputs
