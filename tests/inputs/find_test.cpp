#include "qft/inputs/inputs.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

namespace qft::inputs {
namespace {

namespace fs = std::filesystem;

TEST(Find, AsksForAllThatEntriesWantOfOneRepository) {
  std::string name = (fs::temp_directory_path() / "qft-find-XXXXXX").string();
  const fs::path root = mkdtemp(name.data());
  std::ofstream(root / "dataset_info.json") << R"({"en": {"hf_hub_url": "Acme/data", "folder": "en"},
    "zh": {"hf_hub_url": "Acme/data", "folder": "zh"}, "all": {"hf_hub_url": "Acme/data"}})";
  const auto folders_for = [&](std::vector<std::string> train, std::vector<std::string> eval) {
    config::RunConfig config;
    config.data.dataset_dir = root.string();
    config.data.dataset = std::move(train);
    config.data.eval_dataset = std::move(eval);
    const Locate locate = [&](const hub::Source&, const hub::FileSelection&) { return root; };
    const auto found = find(config, config::Purpose::pack, locate);
    EXPECT_EQ(found.size(), 1U);
    return found.at(0).wanted.folders;
  };
  using Folders = std::vector<std::string>;
  EXPECT_EQ(folders_for({"en"}, {}), Folders{"en"});
  EXPECT_EQ(folders_for({"en", "zh"}, {}), (Folders{"en", "zh"}));
  EXPECT_EQ(folders_for({"en"}, {"zh"}), (Folders{"en", "zh"}));
  EXPECT_EQ(folders_for({"en", "all"}, {}), Folders{});
  fs::remove_all(root);
}

}  // namespace
}  // namespace qft::inputs
