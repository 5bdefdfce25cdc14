#include "qft/track/metrics.h"

#include "qft/track/tracker.h"

#include <cmath>
#include <cstdlib>
#include <fstream>

#include "support/temp_files.h"
#include <gtest/gtest.h>

namespace qft::track {
namespace {

using nlohmann::json;

std::map<std::string, double> by_name(const std::vector<Metric>& metrics) {
  std::map<std::string, double> found;
  for (const Metric& m : metrics) found[m.name] = m.value;
  return found;
}

TEST(Metrics, OfALineHaveTheNamesOfTransformers) {
  const auto metrics =
      metrics_of(json::parse(R"({"current_steps": 5, "total_steps": 9, "loss": 1.5, "lr": 0.1, "grad_norm": "NaN",
      "epoch": 0.5, "rewards/chosen": 0.25, "throughput": 10.0, "memory": [3, 7], "seconds": {"forward": 2.0}, "time": 100.5,
      "system": {"gpu_power": [80, 90], "host_memory": [5]}})"),
                 1.0);
  const auto found = by_name(metrics);
  EXPECT_EQ(found.at("loss"), 1.5);
  EXPECT_EQ(found.at("learning_rate"), 0.1);
  EXPECT_TRUE(std::isnan(found.at("grad_norm")));
  EXPECT_EQ(found.at("rewards/chosen"), 0.25);
  EXPECT_EQ(found.at("tokens_per_second"), 10.0);
  EXPECT_EQ(found.at("memory_peak"), 7.0);
  EXPECT_EQ(found.at("seconds/forward"), 2.0);
  EXPECT_EQ(found.at("system/gpu_power_1"), 90.0);
  EXPECT_EQ(found.at("system/host_memory"), 5.0);
  for (const Metric& m : metrics) {
    EXPECT_EQ(m.step, 5);
    EXPECT_EQ(m.time, 100.5);
  }
}

TEST(Metrics, OfAnEvaluationAreItsOwnAlone) {
  const auto found =
      by_name(metrics_of(json::parse(R"({"current_steps": 5, "eval_loss": 2.0, "eval_rewards/margins": 1.0, "epoch": 0.5,
      "throughput": 0.0, "total_tokens": 7})"),
                         1.0));
  EXPECT_EQ(found, (std::map<std::string, double>{{"eval_loss", 2.0}, {"eval_rewards/margins", 1.0}, {"epoch", 0.5}}));
}

TEST(Metrics, OfWhatIsNoLogLineAreNone) {
  for (const char* text : {"3", "{}", R"({"current_steps": "five", "loss": 1})", "[]", "null"})
    EXPECT_TRUE(metrics_of(json::parse(text), 1.0).empty()) << text;
}

TEST(LogFollower, GivesEachLineOnceItIsWholeAndAgainUntilItIsTaken) {
  const TempFolder folder;
  const std::string path = folder.path() + "/log.jsonl";
  LogFollower log(path);
  EXPECT_TRUE(log.next(10).empty());
  std::ofstream out(path);
  out << "{\"a\": 1}\n{\"a\": 2}\nno json\n{\"a\": 3" << std::flush;
  EXPECT_EQ(log.next(10).size(), 2u);
  EXPECT_EQ(log.next(1).size(), 1u) << "the first was not taken";
  log.take();
  EXPECT_EQ(log.next(10).at(0)["a"], 2);
  log.take();
  out << "}\n" << std::flush;
  EXPECT_EQ(log.next(10).at(0)["a"], 3);
  log.take();
  EXPECT_TRUE(log.next(10).empty());
  EXPECT_FALSE(log.restarted());
}

TEST(LogFollower, BeginsAgainWhereTheFileIsReplaced) {
  const TempFolder folder;
  const std::string path = folder.path() + "/log.jsonl";
  LogFollower log(path);
  std::ofstream(path) << "{\"a\": 1}\n{\"a\": 2}\n";
  log.next(10), log.take();
  std::ofstream(path + ".new") << "{\"a\": 5}\n";
  std::filesystem::rename(path + ".new", path);
  EXPECT_EQ(log.next(10).at(0)["a"], 5);
  EXPECT_TRUE(log.restarted());
}

TEST(Trackers, AreChosenByName) {
  ::unsetenv("MLFLOW_TRACKING_URI");
  const auto chosen = [](std::vector<std::string> names) { return chosen_trackers(names); };
  EXPECT_TRUE(chosen({}).empty());
  EXPECT_TRUE(chosen({"none"}).empty());
  EXPECT_EQ(chosen({"tensorboard", "tensorboard"}), (std::vector<std::string>{"tensorboard"}));
  EXPECT_EQ(chosen({"all"}), (std::vector<std::string>{"tensorboard"})) << "there is no server of MLflow";
  EXPECT_CONTAINS(error_of([&] { chosen({"wandb"}); }), "wandb sync --sync-tensorboard");
  EXPECT_CONTAINS(error_of([&] { chosen({"tensorbord"}); }), "'tensorbord' is unknown: use tensorboard, mlflow, all or none");
  EXPECT_CONTAINS(error_of([&] { chosen({"mlflow"}); }), "mlflow server --host 127.0.0.1 --port 5000");
  ::setenv("MLFLOW_TRACKING_URI", "file:./mlruns", 1);
  EXPECT_CONTAINS(error_of([&] { chosen({"mlflow"}); }), "'file:./mlruns', a local store: start one with `mlflow server");
  ::setenv("MLFLOW_TRACKING_URI", "http://me:secret@127.0.0.1:5000", 1);
  EXPECT_EQ(chosen({"all"}), (std::vector<std::string>{"tensorboard", "mlflow"}));
  ::unsetenv("MLFLOW_TRACKING_URI");
}

TEST(Settings, AreShownWithoutSecrets) {
  const json shown = without_secrets(json::parse(R"({"hf_hub_token": "abc", "max_new_tokens": 5, "a": ["http://u:p@h/x?sig=1"],
      "swanlab_api_key": "k", "model": "m"})"));
  EXPECT_EQ(shown, json::parse(R"({"max_new_tokens": 5, "a": ["http://h/x"], "model": "m"})"));
}

}  // namespace
}  // namespace qft::track
