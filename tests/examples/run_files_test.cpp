// Every run file that the project ships must load without keys that are only noted or are refused.
#include "qft/dialects/dialects.h"

#include <filesystem>
#include <string>
#include <vector>

#include "test_paths.h"
#include <gtest/gtest.h>

namespace qft {
namespace {

std::vector<std::filesystem::path> run_files() {
  std::vector<std::filesystem::path> files;
  for (const char* folder : {"configs", "examples"}) {
    for (const auto& entry : std::filesystem::directory_iterator(test::kSourceDir + "/" + folder)) {
      if (entry.path().extension() == ".yaml") files.push_back(entry.path());
    }
  }
  return files;
}

TEST(RunFiles, AreFound) {
  EXPECT_GE(run_files().size(), 5u);
}

TEST(RunFiles, LoadForTheirPurpose) {
  std::filesystem::current_path(test::kSourceDir);  // the run files name other files of this tree relative to it
  for (const auto& file : run_files()) {
    SCOPED_TRACE(file.string());
    const bool exports = file.stem() == "export";
    const auto purpose = exports ? config::Purpose::export_model : config::Purpose::train;
    config::RunConfig run;
    ASSERT_NO_THROW(run = config::load_run_config(file, {}, purpose, dialects::all()));
    EXPECT_TRUE(run.notes.empty()) << run.notes.front();
    EXPECT_TRUE(exports || run.training.bf16);
  }
}

TEST(RunFiles, ADeepSpeedFileIsTakenAtItsWord) {
  std::filesystem::current_path(test::kSourceDir);
  const auto run =
      config::load_run_config("configs/qwen3_zero3_offload_curriculum.yaml", {}, config::Purpose::any, dialects::all());
  EXPECT_EQ(run.parallel.strategy, "zero3");
  EXPECT_EQ(run.parallel.offload_optimizer, "cpu");
  EXPECT_EQ(run.parallel.offload_param, "cpu");
  EXPECT_TRUE(run.data.use_curriculum);
}

TEST(RunFiles, TheDemoNamesFilesOfThisTree) {
  const std::filesystem::path root = test::kSourceDir;
  const auto run = config::load_run_config(root / "examples/demo.yaml", {}, config::Purpose::any, dialects::all());
  EXPECT_EQ(run.data.dataset, std::vector<std::string>{"cluster_facts"});
  EXPECT_EQ(run.data.eval_dataset, std::vector<std::string>{"cluster_questions"});
  EXPECT_TRUE(std::filesystem::exists(root / run.data.dataset_dir / "dataset_info.json"));
}

}  // namespace
}  // namespace qft
