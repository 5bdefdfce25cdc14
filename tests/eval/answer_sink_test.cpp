#include "eval/answer_sink.h"

#include "qft/core/error.h"
#include "qft/io/file.h"

#include <fstream>
#include <memory>
#include <string>
#include <sys/stat.h>

#include "io/temp_dir.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace qft::eval {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

nlohmann::ordered_json answer(std::int64_t number, const char* finish = "stop") {
  return {{"index", number}, {"predict", "p"}, {"finish", finish}};
}

/// Four records: number 1 has an error, number 3 has no line.
struct Output {
  std::unique_ptr<AnswerSink> open(const json& settings = {{"seed", 1}}, bool overwrite = false, const char* name = nullptr) {
    return open_sink(
        name != nullptr ? name : (dir.path() / "a.jsonl").string(), settings, overwrite, 4,
        [](std::int64_t i) -> std::optional<std::string> {
          if (i == 1) return R"({"index":1,"error":"e"})";
          return i == 3 ? std::optional<std::string>("") : std::nullopt;
        },
        *comm);
  }
  std::string text() const { return io::read_text_file(dir.path() / "a.jsonl"); }
  fs::path part() const { return dir.path() / "a.jsonl.part"; }
  std::string refusal(const json& settings, bool overwrite = false) {
    try {
      open(settings, overwrite);
    } catch (const ConfigError& e) {
      return e.what();
    }
    return "";
  }

  test::TempDir dir;
  std::unique_ptr<comm::Communicator> comm = comm::make_self_communicator();
};

const char* const kWhole =
    "{\"index\":0,\"predict\":\"p\",\"finish\":\"length\"}\n{\"index\":1,\"error\":\"e\"}\n"
    "{\"index\":2,\"predict\":\"p\",\"finish\":\"stop\"}\n";

TEST(AnswerSink, PutsLinesInTheOrderOfTheRecords) {
  Output out;
  const auto sink = out.open();
  EXPECT_TRUE(sink->done().empty());
  sink->add(2, answer(2));
  sink->add(0, answer(0, "length"));
  EXPECT_FALSE(fs::exists(out.dir.path() / "a.jsonl"));
  EXPECT_EQ(sink->finish(), 1);
  EXPECT_EQ(out.text(), kWhole);
  EXPECT_FALSE(fs::exists(out.part()));
}

TEST(AnswerSink, StandardOutputWaitsForTheLinesBefore) {
  Output out;
  testing::internal::CaptureStdout();
  const auto sink = out.open({}, false, "-");
  sink->add(2, answer(2));
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  testing::internal::CaptureStdout();
  sink->add(0, answer(0, "length"));
  EXPECT_EQ(sink->finish(), 1);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), kWhole);
}

TEST(AnswerSink, GoesOnWithWholeLinesOfAnEarlierStart) {
  Output out;
  {
    const auto sink = out.open();
    sink->add(0, answer(0, "length"));
  }
  std::ofstream(out.part() / "0001-0001.jsonl") << "{torn\n"
                                                << R"({"index":2,"predict":"torn","finish":"stop"})";
  const auto sink = out.open();
  EXPECT_EQ(sink->done(), std::vector<std::int64_t>{0});
  sink->add(2, answer(2));
  EXPECT_EQ(sink->finish(), 1);
  EXPECT_EQ(out.text(), kWhole);
}

TEST(AnswerSink, ALineThatIsMissingIsAnError) {
  Output out;
  const auto sink = out.open();
  sink->add(0, answer(0));
  EXPECT_THROW(sink->finish(), Error);
  EXPECT_FALSE(fs::exists(out.dir.path() / "a.jsonl"));
}

TEST(AnswerSink, AnswersOfOtherSettingsAreRefusedOrDropped) {
  Output out;
  out.open({{"seed", 1}, {"prompts", std::string(32, 'a')}})->add(0, answer(0));
  const json other = {{"seed", 2}, {"prompts", std::string(32, 'b')}};
  const std::string refused = out.refusal(other);
  EXPECT_NE(refused.find("prompts differ, seed 1 -> 2"), refused.npos) << refused;
  EXPECT_NE(refused.find("overwrite_output_dir=true"), refused.npos) << refused;
  EXPECT_EQ(out.open({{"seed", 1}, {"prompts", std::string(32, 'a')}})->done().size(), 1U);
  EXPECT_TRUE(out.open(other, /*overwrite=*/true)->done().empty());
}

TEST(AnswerSink, FilesOfOtherProgramsStay) {
  Output out;
  fs::create_directory(out.part());
  std::ofstream(out.part() / "theirs.jsonl") << "{}\n";
  EXPECT_NE(out.refusal({{"seed", 1}}).find("another program"), std::string::npos);
  EXPECT_TRUE(fs::exists(out.part() / "theirs.jsonl"));
  const fs::path theirs = out.dir.path() / "theirs.jsonl", ours = out.dir.path() / "ours.jsonl";
  std::ofstream(theirs) << "{\"index\": 0, \"score\": 1}\n";
  std::ofstream(ours) << answer(0).dump() << "\n";
  for (const bool overwrite : {false, true}) {
    EXPECT_THROW(require_output(theirs, overwrite), ConfigError);
    EXPECT_THROW(require_output(out.dir.path(), overwrite), ConfigError);
  }
  EXPECT_THROW(require_output(ours, false), ConfigError);
  EXPECT_NO_THROW(require_output(ours, true));
  EXPECT_NO_THROW(require_output(out.dir.path() / "new" / "a.jsonl", false));
}

TEST(AnswerSink, AFolderWithSettingsOfAnotherProgramStays) {
  for (const char* settings : {R"({"a": 1})", R"({"format": "other"})", R"({"format": 1})", "[]", "null", "{torn"}) {
    Output out;
    fs::create_directory(out.part());
    std::ofstream(out.part() / "settings.json") << settings;
    std::ofstream(out.part() / "theirs.jsonl") << "{}\n";
    for (const bool overwrite : {false, true})
      EXPECT_NE(out.refusal({{"seed", 1}}, overwrite).find("another program"), std::string::npos) << settings;
    EXPECT_EQ(io::read_text_file(out.part() / "settings.json"), settings);
    EXPECT_TRUE(fs::exists(out.part() / "theirs.jsonl"));
  }
}

TEST(AnswerSink, PipesDevicesAndLinksAreRefused) {
  Output out;
  const auto refusal = [](const fs::path& path) -> std::string {
    try {
      require_output(path, /*overwrite=*/true);
    } catch (const ConfigError& e) {
      return e.what();
    }
    return "";
  };
  ASSERT_NE(refusal("/dev/null").find("--output -"), std::string::npos) << refusal("/dev/null");
  const fs::path pipe = out.dir.path() / "pipe", link = out.dir.path() / "link", file = out.dir.path() / "file.jsonl";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_NE(refusal(pipe).find("--output -"), std::string::npos) << refusal(pipe);
  fs::create_symlink(file, link);
  EXPECT_NE(refusal(link).find("link to '" + file.string()), std::string::npos) << "it leads nowhere: " << refusal(link);
  std::ofstream(file) << answer(0).dump() << "\n";
  EXPECT_NE(refusal(link).find("link to '" + file.string()), std::string::npos) << refusal(link);
}

}  // namespace
}  // namespace qft::eval
