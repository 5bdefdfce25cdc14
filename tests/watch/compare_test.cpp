// Comparison of runs: their order, differing keys, and unreadable files.
#include "qft/watch/compare.h"

#include "qft/core/clock.h"
#include "qft/core/error.h"
#include "qft/watch/page.h"

#include <cmath>
#include <filesystem>
#include <fstream>

#include "support/temp_files.h"
#include <gtest/gtest.h>

namespace qft::watch {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class CompareTest : public ::testing::Test {
 protected:
  CompareTest() : dir_(folder_.path()) {}
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((dir_ / name).parent_path());
    std::ofstream(dir_ / name) << text;
  }
  /// Writes a finished run of `steps` steps: loss falls to `last`, eval_loss is lowest in the middle.
  void run(const std::string& name, double last, double best, int steps = 10, json settings = {{"lora_rank", 4}}) const {
    for (const char* key : {"output_dir", "log_dir", "trace_steps", "resume_from_checkpoint"})
      settings[key] = (dir_ / name).string();
    write(name + "/run.json", json{{"status", "finished"}, {"ranks", 2}, {"total_steps", steps}, {"settings", settings}}.dump());
    std::string log;
    for (int i = 1; i <= steps; ++i) {
      log += json{{"current_steps", i},      {"total_steps", steps},      {"loss", last + steps - i},
                  {"throughput", 100.0 + i}, {"elapsed_time", "1:02:03"}, {"memory", {3e9, 4e9}}}
                 .dump() +
             "\n";
      if (i == steps / 2 || i == steps)
        log += json{{"current_steps", i}, {"total_steps", steps}, {"eval_loss", i == steps ? best + 1 : best}}.dump() + "\n";
    }
    write(name + "/trainer_log.jsonl", log);
  }
  Comparison compare(const std::vector<std::string>& names) const {
    std::vector<fs::path> dirs;
    for (const std::string& name : names) dirs.push_back(dir_ / name);
    return compare_runs(dirs);
  }
  static std::string all_of(const std::vector<std::string>& texts) {
    std::string all;
    for (const std::string& text : texts) all += text + "\n";
    return all;
  }
  TempFolder folder_;
  fs::path dir_;
};

TEST_F(CompareTest, TheLowestEvalLossComesFirstWithItsFigures) {
  run("a", 0.5, 2.5);
  run("b", 0.75, 1.25, 20);
  const Comparison c = compare({"a", "b"});
  ASSERT_EQ(c.runs.size(), 2u);
  const ComparedRun& b = c.runs[0];
  EXPECT_EQ(b.name, "b");
  EXPECT_EQ(b.best_eval_loss, 1.25);
  EXPECT_EQ(b.best_eval_step, 10);
  EXPECT_EQ(b.loss, 0.75);
  EXPECT_EQ(b.step, 20);
  EXPECT_EQ(b.seconds, 3723);
  EXPECT_EQ(b.memory_peak, 4e9);
  EXPECT_EQ(b.tokens_per_second, 111);
  EXPECT_EQ(c.differing.at("total_steps"), (std::vector<json>{20, 10})) << "other lengths";
  for (const char* key : {"output_dir", "log_dir", "trace_steps", "resume_from_checkpoint"})
    EXPECT_FALSE(c.differing.contains(key)) << key;
  EXPECT_EQ(c.page, dir_ / "compare.html");
  const std::string text = compare_text(c, 80);
  EXPECT_LT(text.find("a     1.2500       10  0.7500  20/20"), text.find("b     2.5000        5  0.5000  10/10")) << text;
}

TEST_F(CompareTest, WithoutEvaluationsTheLastLossDecides) {
  for (const auto& [name, loss] : {std::pair{"a", 3.0}, {"b", 1.0}, {"c", 2.0}})
    write(std::string(name) + "/trainer_log.jsonl", json{{"current_steps", 1}, {"loss", loss}}.dump() + "\n");
  const Comparison c = compare({"a", "b", "c"});
  EXPECT_EQ(c.runs[0].name + c.runs[1].name + c.runs[2].name, "bca");
  EXPECT_NE(all_of(c.problems).find("run.json is missing"), std::string::npos);
}

TEST_F(CompareTest, ShowsOnlyKeysThatDifferWithAValueARun) {
  run("a", 1, 1, 10, {{"lora_rank", 4}, {"learning_rate", 1e-4}, {"lora_target", {"q_proj", "v_proj"}}});
  run("b", 2, 2, 10, {{"lora_rank", 4}, {"learning_rate", 2e-4}, {"lora_target", nullptr}});
  write("old/trainer_log.jsonl", "{\"current_steps\": 1, \"loss\": 9}\n");
  const Comparison c = compare({"b", "a", "old"});
  EXPECT_EQ(c.differing.size(), 2u);
  EXPECT_EQ(c.differing.at("learning_rate"), (std::vector<json>{1e-4, 2e-4, nullptr}));
  const std::string text = compare_text(c, 80);
  EXPECT_EQ(text.find("lora_rank"), std::string::npos) << text;
  EXPECT_NE(text.find("lora_target    q_proj,v_proj       -  -"), std::string::npos) << text;
}

TEST_F(CompareTest, MoreRunsThanFitBesideEachOtherGoOnBelow) {
  for (int i = 0; i < 30; ++i)
    run("run" + std::to_string(i), i, i, 10, {{"default_system", std::string(20, 'x') + std::to_string(i)}});
  std::vector<std::string> names;
  for (int i = 0; i < 30; ++i) names.push_back("run" + std::to_string(i));
  const std::string text = compare_text(compare(names), 80);
  for (int i = 0; i < 30; ++i) EXPECT_NE(text.find(std::string(20, 'x') + std::to_string(i)), std::string::npos) << i << text;
  EXPECT_NE(text.find("of the first 26 of 30 runs"), std::string::npos) << text;
}

TEST_F(CompareTest, AFolderOfRunsStandsForThem) {
  run("sweep/a", 1, 2), run("sweep/b", 1, 1);
  write("sweep/notes.txt", "");
  fs::create_directories(dir_ / "sweep/empty");
  const Comparison c = compare({"sweep", "sweep/a"});
  ASSERT_EQ(c.runs.size(), 2u) << "each once";
  EXPECT_EQ(c.runs[0].name, "b");
  EXPECT_EQ(c.page, dir_ / "sweep/compare.html");
}

TEST_F(CompareTest, NamesFoldersThatItCannotRead) {
  run("a", 1, 1);
  write("cut/run.json", "{\"status\": \"runn");
  write("cut/trainer_log.jsonl", "{\"current_st");
  fs::create_directories(dir_ / "empty");
  const Comparison c = compare({"a", "cut", "empty", "none"});
  EXPECT_EQ(c.runs.size(), 2u);
  EXPECT_EQ(c.left_out, 2u);
  const std::string said = all_of(c.problems);
  for (const char* words : {"cut': run.json cannot be read", "cut': trainer_log.jsonl holds no complete log line",
                            "empty' holds no run of qft train", "none' is not a directory"})
    EXPECT_NE(said.find(words), std::string::npos) << words << said;
  EXPECT_THROW(compare({"none"}), Error);
}

TEST_F(CompareTest, SaysWhereEvalLossesAreOverOtherData) {
  run("a", 1, 1, 10, {{"val_size", 4}, {"seed", 1}}), run("b", 1, 2, 10, {{"val_size", 4}, {"seed", 2}});
  EXPECT_NE(all_of(compare({"a", "b"}).problems).find("seed differs: eval_loss may be over different data"), std::string::npos);
  run("b", 1, 2, 10, {{"val_size", 4}, {"seed", 1}});
  EXPECT_TRUE(compare({"a", "b"}).problems.empty());
}

TEST_F(CompareTest, ARunThatDivergedSaysWhyAndPressesNoOtherFlat) {
  run("a", 1, 1);
  write("b/run.json", R"({"status": "failed", "error": "step 3: loss nan", "settings": {"lora_rank": 4}})");
  write("b/trainer_log.jsonl",
        "{\"current_steps\": 1, \"loss\": 10}\n{\"current_steps\": 2, \"loss\": 1e30}\n{\"current_steps\": 3, \"loss\": "
        "\"NaN\"}\n");
  const std::string text = compare_text(compare({"a", "b"}), 80);
  EXPECT_NE(text.find("b': step 3: loss nan"), std::string::npos) << text;
  EXPECT_NE(text.find("values above 20 are drawn at that height"), std::string::npos) << text;
  EXPECT_NE(text.find(" nan "), std::string::npos) << text;
}

TEST_F(CompareTest, ThePageHoldsTheSameAsTheJson) {
  run("a <script>", 1, 1), run("b", 2, 2, 10, {{"lora_rank", 8}});
  const Comparison c = compare({"a <script>", "b"});
  const json data = compare_json(c);
  EXPECT_EQ(data["runs"][0]["curves"]["eval_loss"], (json::array({{5, 1.0}, {10, 2.0}})));
  EXPECT_EQ(data["differing"]["lora_rank"], json::array({4, 8}));
  const std::string page = compare_page(c, 0);
  const std::size_t begin = page.find("id=\"data\">") + 10;
  const json held = json::parse(page.substr(begin, page.find("</script>", begin) - begin));
  EXPECT_EQ(held["runs"][0]["curves"], data["runs"][0]["curves"]);
  EXPECT_EQ(held["runs"][0]["name"], "a <script>");
  EXPECT_EQ(page.find("QFT_"), std::string::npos);
}

TEST_F(CompareTest, ReplacesItsOwnPageAndNoOtherFile) {
  run("a", 1, 1), run("b", 2, 2);
  const Comparison c = compare({"a", "b"});
  EXPECT_EQ(write_compare_page(c), dir_ / "compare.html");
  EXPECT_EQ(write_compare_page(c), dir_ / "compare.html") << "its own";
  write("compare.html", "<!doctype html><title>another tool</title>");
  write("notes.html", "mine");
  write("new.html", "");
  fs::create_directory(dir_ / "folder.html");
  for (const fs::path& file : {fs::path(), dir_ / "notes.html", dir_ / "folder.html"})
    EXPECT_THROW(write_compare_page(c, file), Error) << file;
  for (const auto& [name, text] :
       {std::pair("compare.html", "<!doctype html><title>another tool</title>"), {"notes.html", "mine"}}) {
    std::ifstream in(dir_ / name);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), text);
  }
  EXPECT_EQ(write_compare_page(c, dir_ / "new.html"), dir_ / "new.html") << "nothing is lost";
}

TEST(Letters, CurvesOnEachOtherTakeTurnsAndPointsWin) {
  const Curve flat{{1, 1.0}, {100, 1.0}};
  const auto rows = draw_letters({{'a', flat}, {'b', flat}, {'A', {{100, 1.0}}, true}}, 60, 5);
  ASSERT_EQ(rows.size(), 5u);
  std::string line;
  for (const std::string& row : rows)
    if (row.find("ab") != row.npos) line = row;
  EXPECT_NE(line.find("ababab"), std::string::npos);
  EXPECT_EQ(line.back(), 'A');
  EXPECT_EQ(draw_letters({}, 60, 5).size(), 1u);
  EXPECT_EQ(draw_letters({{'a', {{1, NAN}}}}, 60, 5).size(), 1u);
}

}  // namespace
}  // namespace qft::watch
