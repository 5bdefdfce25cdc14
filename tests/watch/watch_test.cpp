#include "qft/core/clock.h"
#include "qft/core/error.h"
#include "qft/watch/page.h"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "support/temp_files.h"
#include <gtest/gtest.h>

namespace qft::watch {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kHostile = "</script><script>alert('x')</script> \"q\" \x1b[2J\x07 <!-- \xff";

class WatchTest : public ::testing::Test {
 protected:
  WatchTest() : dir_(folder_.path()) {}
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((dir_ / name).parent_path());
    std::ofstream(dir_ / name) << text;
  }
  void describe(const std::string& status, const std::string& name = "a run") const {
    json d{{"run", "0123"},         {"status", status}, {"name", name},     {"ranks", 2},
           {"hosts", {"n1", "n2"}}, {"device", "CPU"},  {"strategy", "ddp"}};
    d["model"] = {{"path", "models/m"}, {"parameters", 8e9}, {"trainable", 4e7}};
    d["memory"] = {{"total", 5e9}, {"available", 9e9}, {"parts", {{"weights", 5e9}}}};
    d["settings"] = {{"lora_rank", 4}};
    write("run.json", d.dump(-1, ' ', false, json::error_handler_t::replace));
  }
  static std::string entry(int step, double loss) {
    return fmt::format(
        "{{\"current_steps\": {}, \"total_steps\": 100, \"loss\": {}, \"lr\": 0.001, \"grad_norm\": 1.5, \"epoch\": 0.5, "
        "\"time\": {}, "
        "\"elapsed_time\": \"01:00\", \"remaining_time\": \"02:00\", \"throughput\": 1234.0, \"memory\": [3e9, 4e9], "
        "\"seconds\": {{\"forward\": 1.0, \"backward\": 3.0}}}}\n",
        step, loss, unix_seconds());
  }
  std::string page(int width = 100, int height = 40) {
    RunReader reader(dir_);
    return text_page(reader.refresh(), {width, height, false, "loss", unix_seconds()});
  }
  TempFolder folder_;
  fs::path dir_;
};

TEST_F(WatchTest, ShowsARunAsItsFilesHaveIt) {
  describe("running");
  write(".qft-lock", "x");
  std::string log;
  for (int step = 1; step <= 30; ++step) log += entry(step, 3.0 - 0.05 * step);
  write("trainer_log.jsonl", log + "{\"current_steps\": 30, \"eval_loss\": 1.75, \"epoch\": 0.5}\n{\"current_steps\": 31, \"lo");
  write("checkpoint-20/manifest.json", "{}");
  write("checkpoint-5/manifest.json", "{}");
  write("checkpoint-99/model.safetensors", "another program's");
  const std::string text = page();
  for (const char* part :
       {"a run  running  2 ranks on n1, n2", "step 30/100", "loss 1.5000", "eval_loss 1.7500", "1234 tokens/s",
        "01:00 elapsed, 02:00 left", "last checkpoint checkpoint-20", "backward 75 %  forward 25 %", "4.00 GB at most", "step 1"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST_F(WatchTest, FitsTheTerminal) {
  describe("running", std::string(300, 'n'));
  std::string log;
  for (int step = 1; step <= 50; ++step) log += entry(step, 1.0 / step);
  write("trainer_log.jsonl", log);
  for (const auto& [width, height] : {std::pair{40, 12}, {80, 24}, {200, 60}}) {
    const std::string text = page(width, height);
    EXPECT_LE(std::count(text.begin(), text.end(), '\n'), height);
    for (std::size_t begin = 0, end; (end = text.find('\n', begin)) != text.npos; begin = end + 1) {
      const std::string line = text.substr(begin, end - begin);
      EXPECT_LE(std::count_if(line.begin(), line.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }),
                width)
          << line;
    }
  }
}

TEST_F(WatchTest, FollowsALogThatGrowsAndOneThatAResumedRunCut) {
  describe("running");
  write("trainer_log.jsonl", entry(1, 3.0) + entry(2, 2.0) + entry(3, 1.0));
  RunReader reader(dir_);
  EXPECT_EQ(reader.refresh().curves.at("loss").size(), 3u);
  std::ofstream(dir_ / "trainer_log.jsonl", std::ios::app) << entry(4, 0.5);
  EXPECT_EQ(reader.refresh().curves.at("loss").size(), 4u);
  write("new", entry(1, 3.0) + entry(2, 2.5));
  fs::rename(dir_ / "new", dir_ / "trainer_log.jsonl");
  const auto& curve = reader.refresh().curves.at("loss");
  ASSERT_EQ(curve.size(), 2u);
  EXPECT_EQ(curve.back().second, 2.5);
}

TEST_F(WatchTest, TellsARunThatWasKilledFromOneThatGoesOn) {
  describe("running");
  write("trainer_log.jsonl", entry(1, 3.0));
  write(".qft-lock", "x");
  RunReader reader(dir_);
  EXPECT_EQ(reader.refresh().status, "running");
  EXPECT_TRUE(reader.refresh().warnings.empty());
  const auto hours_ago = fs::file_time_type::clock::now() - std::chrono::hours(2);
  for (const char* name : {"run.json", "trainer_log.jsonl", ".qft-lock"}) fs::last_write_time(dir_ / name, hours_ago);
  EXPECT_EQ(reader.refresh().status, "silent");
  EXPECT_NE(page().find("! no sign of life for 2:00:0"), std::string::npos) << page();
  describe("finished");
  EXPECT_EQ(reader.refresh().status, "finished");
}

TEST_F(WatchTest, WarnsOfNumbersThatAreNotFinite) {
  describe("stopped");
  write("trainer_log.jsonl", "{\"current_steps\": 7, \"loss\": \"NaN\", \"grad_norm\": \"Infinity\", \"skipped_updates\": 3}\n");
  const std::string text = page();
  EXPECT_NE(text.find("is not finite"), std::string::npos) << text;
  EXPECT_NE(text.find("3 updates were skipped"), std::string::npos) << text;
}

TEST_F(WatchTest, RefusesAFolderThatHoldsNoRun) {
  RunReader reader(dir_);
  EXPECT_THROW(reader.refresh(), Error);
  EXPECT_THROW(RunReader(dir_ / "none").refresh(), Error);
}

TEST_F(WatchTest, TakesNothingFromFilesThatAreNotWhatTheyShouldBe) {
  for (const char* text :
       {"", "{", "[]", "3", "{\"status\": \"running\"}", "{\"hosts\": 3, \"model\": 4, \"memory\": 5, \"name\": []}"}) {
    write("run.json", text);
    write("trainer_log.jsonl",
          "[]\n\"x\"\n{\"current_steps\": 3, \"loss\": 1, \"memory\": 3, \"seconds\": {\"a\": \"b\"}, \"system\": {\"x\": 3}}\n");
    write("generated_predictions.jsonl", "[]\n{\"prompt\": 3}\n");
    write("all_results.json", "{");
    try {
      RunReader reader(dir_);
      const RunView& run = reader.refresh();
      text_page(run, {80, 30, false, "loss", 0});
      html_page(run, 0);
    } catch (const Error&) {
    }  // reports the error
  }
}

TEST_F(WatchTest, ShowsTheBasesAnswersUntilOthersAreNewer) {
  describe("finished");
  write("trainer_log.jsonl", entry(1, 3.0));
  write("compared_predictions.jsonl", json{{"prompt", "p"}, {"label", "l"}, {"base", "b"}, {"predict", "t"}}.dump() + "\n");
  RunReader compared(dir_);
  ASSERT_EQ(compared.refresh().samples.size(), 1u);
  EXPECT_EQ(compared.refresh().samples[0].base, "b");
  EXPECT_EQ(compared.refresh().samples[0].tuned, "t");
  write("generated_predictions.jsonl", json{{"prompt", "p"}, {"label", "l"}, {"predict", "newer"}}.dump() + "\n");
  fs::last_write_time(dir_ / "compared_predictions.jsonl", fs::file_time_type::clock::now() - std::chrono::minutes(1));
  RunReader newer(dir_);
  ASSERT_EQ(newer.refresh().samples.size(), 1u);
  EXPECT_EQ(newer.refresh().samples[0].tuned, "newer");
  EXPECT_EQ(newer.refresh().samples[0].base, "");
}

TEST_F(WatchTest, HostileTextsStayTexts) {
  describe("finished", kHostile);
  write("trainer_log.jsonl", entry(1, 3.0));
  write("generated_predictions.jsonl", json{{"prompt", "</script>"}, {"predict", "<b>"}, {"label", "'"}}.dump() + "\n");
  RunReader reader(dir_);
  const std::string html = html_page(reader.refresh(), unix_seconds());
  const std::size_t begin = html.find("id=\"data\">") + 10, end = html.find("</script>", begin);
  const json data = json::parse(html.substr(begin, end - begin));
  EXPECT_EQ(data["samples"][0]["prompt"], "</script>");
  EXPECT_EQ(html.substr(begin, end - begin).find('<'), std::string::npos);
  const std::string text = page();
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find('\x07'), std::string::npos);
}

TEST(HtmlPage, KeepsTheSpikesOfALongCurve) {
  RunView run;
  for (int step = 0; step < 100000; ++step) run.curves["loss"].emplace_back(step, step == 77777 ? 50.0 : 1.0);
  const std::string html = html_page(run, 0);
  EXPECT_LT(html.size(), 200000u);
  EXPECT_NE(html.find("[77777,50.0]"), std::string::npos);
}

TEST(HtmlPage, StaysSmallWithManyGpus) {
  RunView run;
  for (int step = 0; step < 2000; ++step) run.curves["loss"].emplace_back(step, 1.0);
  for (int gpu = 0; gpu < 500; ++gpu) run.curves["system/gpu_use_" + std::to_string(gpu)] = run.curves["loss"];
  const std::string html = html_page(run, 0);
  EXPECT_LT(html.size(), 4'000'000u);
  const auto begin = html.find("id=\"data\">") + 10;
  const json data = json::parse(html.substr(begin, html.find("</script>", begin) - begin));
  EXPECT_EQ(data["curves"]["loss"].size(), 2000u) << "the machine's curves are the ones that are thinned";
}

/// A call with one argument per point fails above about 100,000.
TEST(HtmlPage, SpreadsNoPointsIntoArguments) {
  const std::string html = html_page(RunView(), 0);
  EXPECT_EQ(html.find("Math.min(...steps"), std::string::npos);
  EXPECT_EQ(html.find("Math.max(...steps"), std::string::npos);
}

/// Between log lines, and before the first one, the progress file tells the step.
TEST_F(WatchTest, ShowsARunFromItsStart) {
  write(".qft-lock", "x");
  write(kProgressFile, R"({"phase": "pack", "time": 1})");
  EXPECT_NE(page().find("running"), std::string::npos);
  EXPECT_NE(page().find("packing the data"), std::string::npos) << page();
  const auto at = [&](int step, const char* phase = "train") {
    write(kProgressFile,
          json{{"phase", phase}, {"step", step}, {"total_steps", 100}, {"from_step", 0}, {"from_time", 1000}, {"time", 1060}}
              .dump());
  };
  at(0);
  EXPECT_NE(page().find("in its first step"), std::string::npos) << page();
  at(3);
  EXPECT_NE(page().find("step 3/100"), std::string::npos) << page();
  EXPECT_NE(page().find("01:00 elapsed, 32:20 left"), std::string::npos) << page();
  describe("running");
  write("trainer_log.jsonl", entry(5, 2.0));
  EXPECT_NE(page().find("step 5/100"), std::string::npos) << "the log is newer: " << page();
  at(7, "eval");
  EXPECT_NE(page().find("step 7/100"), std::string::npos) << page();
  EXPECT_NE(page().find("evaluating"), std::string::npos) << page();
}

/// A killed process leaves the file.
TEST_F(WatchTest, TellsAStartThatWasKilledFromTheRunBefore) {
  write(kProgressFile, R"({"phase": "load"})");
  EXPECT_NE(page().find("silent"), std::string::npos) << page();
  describe("finished");
  EXPECT_NE(page().find("finished"), std::string::npos) << page();
  describe("stopped");
  write(".qft-lock", "x");
  EXPECT_NE(page().find("running"), std::string::npos) << "resumed, and loading: " << page();
}

TEST_F(WatchTest, SaysWhyARunFailed) {
  write("run.json", R"({"status": "failed", "error": "step 4: loss nan and gradient norm nan are not both finite"})");
  EXPECT_NE(page().find("! step 4: loss nan"), std::string::npos) << page();
}

/// Content of a log or run file is shown and cannot control the terminal.
TEST(TextPage, ControlCharactersOfAllKindsAreReplaced) {
  RunView run;
  run.dir = "run";
  const std::string name = "a/\x1b]0;PWN\x07\xc2\x9b 31m\xff\xe2\x82";
  run.curves[name] = {{1, 1.0}, {2, 2.0}};
  run.warnings = {name};
  run.description = {{"name", "f\xc3\xbcr \xe4\xbd\xa0"}};
  const std::string text = text_page(run, {80, 24, false, name, 0});
  for (const char* part : {"\x1b", "\x07", "\xc2\x9b", "\xff", "\xe2\x82\n"})
    EXPECT_EQ(text.find(part), std::string::npos) << text;
  EXPECT_NE(text.find("f\xc3\xbcr \xe4\xbd\xa0"), std::string::npos) << "letters stay";
}

TEST(Curve, IsDrawnFromItsFirstStepToItsLast) {
  Curve curve;
  for (int i = 0; i <= 100; ++i) curve.emplace_back(i, 100.0 - i);
  const auto rows = draw_curve(curve, {}, 60, 11, false);
  ASSERT_EQ(rows.size(), 11u);
  EXPECT_NE(rows[0].find("100"), std::string::npos);
  EXPECT_NE(rows[0].find("⢄"), std::string::npos) << rows[0];
  EXPECT_NE(rows[10].find("step 0"), std::string::npos);
  EXPECT_EQ(draw_curve({{1, NAN}}, {}, 60, 11, false).size(), 1u);
  EXPECT_EQ(draw_curve({{1, 2.0}}, {}, 60, 5, false).size(), 5u) << "one point";
}

}  // namespace
}  // namespace qft::watch
