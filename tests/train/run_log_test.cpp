#include "qft/train/run_log.h"

#include "qft/io/file.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <unistd.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace qft::train {
namespace {

namespace fs = std::filesystem;

class RunLogTest : public ::testing::Test {
 protected:
  RunLogTest() : dir_(fs::temp_directory_path() / fmt::format("qft_run_log_{}", ::getpid())) { fs::create_directories(dir_); }
  ~RunLogTest() override { fs::remove_all(dir_); }
  static LogEntry entry(std::int64_t step, double loss) {
    LogEntry e;
    e.step = step;
    e.total_steps = 20;
    e.epoch = 0.1 * static_cast<double>(step);
    e.loss = loss;
    e.grad_norm = 1.0;
    e.learning_rate = 1e-4;
    e.elapsed_seconds = 3661;
    e.memory = {1000, 2000};
    return e;
  }
  std::string read(const char* name) const { return io::read_text_file(dir_ / name); }
  fs::path dir_;
};

TEST_F(RunLogTest, WritesALineAStepThatParses) {
  RunLog log(dir_, 0);
  log.append(entry(5, 2.5));
  const auto json = nlohmann::json::parse(read("trainer_log.jsonl"));
  EXPECT_EQ(json["current_steps"], 5);
  EXPECT_EQ(json["total_steps"], 20);
  EXPECT_EQ(json["percentage"], 25.0);
  EXPECT_EQ(json["elapsed_time"], "1:01:01");
  EXPECT_EQ(json["remaining_time"], "3:03:03");
  EXPECT_EQ(json["memory"].size(), 2u);
  EXPECT_TRUE(json["seconds"].contains("optimizer"));
  EXPECT_FALSE(json.contains("eval_loss"));
}

TEST_F(RunLogTest, MetricsStandBesideTheLossAndStayOnAResume) {
  {
    LogEntry e = entry(5, 2.5);
    e.metrics = {{"rewards/accuracies", 0.75}, {"logps/chosen", -1.5}, {"eval_accuracy", 0.5}, {"eval_my set_loss", 2.0}};
    RunLog(dir_, 0).append(e);
  }
  const auto json = nlohmann::json::parse(read("trainer_log.jsonl"));
  EXPECT_EQ(json["rewards/accuracies"], 0.75);
  EXPECT_EQ(json["logps/chosen"], -1.5);
  const auto state = nlohmann::json::parse(RunLog(dir_, 5).trainer_state({}));
  EXPECT_EQ(state["log_history"][0]["rewards/accuracies"], 0.75);
  EXPECT_EQ(state["log_history"][0]["eval_accuracy"], 0.5);
  EXPECT_EQ(RunLog(dir_, 5).entries().at(0).metrics.at("eval_my set_loss"), 2.0);
}

TEST_F(RunLogTest, ALossThatIsNoNumberStillParses) {
  RunLog log(dir_, 0);
  log.append(entry(1, NAN));
  EXPECT_EQ(nlohmann::json::parse(read("trainer_log.jsonl"))["loss"], "nan");
  log.write_plots();
  EXPECT_FALSE(fs::exists(dir_ / "training_loss.svg"));
}

TEST_F(RunLogTest, AResumeKeepsTheLinesUpToItsStep) {
  {
    RunLog log(dir_, 0);
    for (int s = 1; s <= 6; ++s) log.append(entry(s, 10.0 - s));
    std::ofstream(dir_ / "trainer_log.jsonl", std::ios::app) << R"({"current_steps": 7, "total)";  // cut by a kill
  }
  RunLog resumed(dir_, 4);
  ASSERT_EQ(resumed.entries().size(), 4u);
  EXPECT_EQ(resumed.entries().back().loss, 6.0);
  resumed.append(entry(5, 5.0));
  const std::string text = read("trainer_log.jsonl");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 5);
  const auto state = nlohmann::json::parse(resumed.trainer_state({5, 20, 0.5, 3.0, 2, {}}));
  EXPECT_EQ(state["log_history"].size(), 5u);
  EXPECT_EQ(state["global_step"], 5);
  EXPECT_TRUE(state["best_model_checkpoint"].is_null());
  BestModel saved;
  saved.observe(1.25, 4, /*greater_is_better=*/false);
  saved.saved("checkpoint-4", 4);
  const auto best = nlohmann::json::parse(resumed.trainer_state({5, 20, 0.5, 3.0, 2, saved}));
  EXPECT_EQ(best["best_model_checkpoint"], (dir_ / "checkpoint-4").string());
  EXPECT_EQ(best["best_metric"], 1.25);
}

TEST_F(RunLogTest, PlotsHoldEveryPoint) {
  RunLog log(dir_, 0);
  for (int s = 1; s <= 30; ++s) log.append(entry(s, 3.0 / s));
  log.write_plots();
  const std::string svg = read("training_loss.svg");
  EXPECT_EQ(svg.compare(0, 4, "<svg"), 0);
  const auto line = svg.find("points=\"");
  ASSERT_NE(line, std::string::npos);
  const std::string points = svg.substr(line + 8, svg.find('"', line + 8) - line - 8);
  EXPECT_EQ(std::count(points.begin(), points.end(), ','), 30);
}

}  // namespace
}  // namespace qft::train
