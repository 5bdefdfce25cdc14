// Tests `qft check` as a whole on this machine.
#include "qft/check/check.h"
#include "qft/check/paths.h"
#include "qft/comm/exchange.h"
#include "qft/core/error.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <unistd.h>

#include <gtest/gtest.h>

namespace qft::check {
namespace {

namespace fs = std::filesystem;

std::vector<Verdict> of(const Report& report, const std::string& probe) {
  std::vector<Verdict> found;
  for (const Verdict& v : report.verdicts)
    if (v.probe == probe) found.push_back(v);
  return found;
}

TEST(Check, PassesOnThisMachine) {
  Options options;
  options.gpus.error = "no driver";
  options.largest_message = 1 << 16;
  options.only = "^(?!compute)";
  auto& session = comm::Session::current();
  std::size_t told = 0;
  const auto report = run(session, options, [&](const Verdict&) { ++told; });
  for (const Verdict& v : report.verdicts) EXPECT_NE(v.level, Level::problem) << v.probe << ": " << v.text;
  EXPECT_TRUE(report.passed());
  EXPECT_EQ(told, report.verdicts.size());
  ASSERT_EQ(of(report, "values").size(), 1U);
  EXPECT_NE(of(report, "values")[0].text.find("right on all ranks"), std::string::npos);
  EXPECT_EQ(to_json(report).at("facts").at("software").at(0).at("ranks").size(), static_cast<std::size_t>(session.size()));
}

TEST(Check, NamesMissingFilesTheirKeyAndRanks) {
  auto& session = comm::Session::current();
  const auto here =
      fs::temp_directory_path() / ("qft-check-" + comm::broadcast_string(session.world(), std::to_string(getpid())));
  if (session.rank() == 0) {
    fs::create_directories(here / "model");
    std::ofstream(here / "model/config.json") << "{}";
    fs::create_symlink(here / "nowhere", here / "model/tokenizer.json");
  }
  session.world().barrier();
  Options options;
  options.only = "^files/";
  options.paths = {{"model_name_or_path", here / "model", NeededPath::Use::read},
                   {"pack", here / "no.h5", NeededPath::Use::read},
                   {"export_dir", "/proc/qft/out", NeededPath::Use::write},
                   {"output_dir", here / "out/run1", NeededPath::Use::write}};
  const auto report = run(session, options);
  EXPECT_FALSE(report.passed());
  const auto files = of(report, "files");
  ASSERT_EQ(files.size(), 2U);
  EXPECT_NE(files[0].text.find("tokenizer.json' is a link to '" + (here / "nowhere").string() + "', which does not exist"),
            std::string::npos)
      << files[0].text;
  EXPECT_NE(files[1].text.find("no.h5' does not exist"), std::string::npos) << files[1].text;
  const auto outputs = of(report, "output");
  ASSERT_EQ(outputs.size(), 2U);
  EXPECT_NE(outputs[0].text.find("could not be made in /proc"), std::string::npos) << outputs[0].text;
  EXPECT_EQ(outputs[1].level, Level::fine);
  const auto shared = of(report, "output sharing");
  ASSERT_EQ(shared.size(), 1U);
  EXPECT_NE(shared[0].text.find("shared by all ranks"), std::string::npos);
  session.world().barrier();
  if (session.rank() == 0) {
    EXPECT_EQ(std::distance(fs::directory_iterator(here), fs::directory_iterator()), 1) << "a probe's file was left behind";
    fs::remove_all(here);
  }
}

/// A folder with the same name on all ranks, and a subfolder for each rank; removed at the end.
class Folder {
 public:
  explicit Folder(comm::Session& session) : session_(session) {
    all_ = fs::temp_directory_path() / ("qft-check-" + comm::broadcast_string(session.world(), std::to_string(getpid())));
    fs::create_directories(mine());
    session.world().barrier();
  }
  ~Folder() {
    session_.world().barrier();
    if (session_.rank() == 0) fs::remove_all(all_);
  }
  fs::path mine() const { return all_ / std::to_string(session_.rank()); }

 private:
  comm::Session& session_;
  fs::path all_;
};

TEST(Check, LeftOversAndEqualPidsAreNoFault) {
  auto& session = comm::Session::current();
  const Folder folder(session);
  const auto pid = std::to_string(getpid()), first = comm::broadcast_string(session.world(), pid);
  for (const std::string& name : {".qft-check-own-" + pid, ".qft-check-" + first}) std::ofstream(folder.mine() / name) << "x";
  Options options;
  options.only = "^files/";
  options.paths = {{"output_dir", folder.mine(), NeededPath::Use::write}};
  const auto report = run(session, options);
  EXPECT_TRUE(report.passed()) << summary(report);
  EXPECT_EQ(of(report, "output sharing").at(0).level, session.size() == 1 ? Level::fine : Level::warning);
}

/// Returns the verdicts on datasets of `files` files each, with the same names on all ranks; rank `lacking` lacks the last file.
std::vector<Verdict> of_data(comm::Session& session, int files, int lacking, bool dangling) {
  const Folder folder(session);
  const bool lacks = session.rank() == lacking;
  nlohmann::json info;
  config::RunConfig config;
  config.data.dataset_dir = "REMOTE:acme/data";
  config.folders["dataset:acme/data"] = folder.mine();
  for (int i = 0; i < files; ++i) {
    const std::string name = "n" + std::to_string(i), last = "set" + name + "/" + name + ".json";
    fs::create_directory(folder.mine() / ("set" + name));
    info[name] = {{"file_name", "set" + name}};
    std::ofstream(folder.mine() / ("set" + name) / "a.json") << "[]";
    if (!lacks || i + 1 < files)
      std::ofstream(folder.mine() / last) << "[]";
    else if (dangling)
      fs::create_symlink("nowhere", folder.mine() / last);
    config.data.dataset.push_back(name);
  }
  std::ofstream(folder.mine() / "dataset_info.json") << info.dump();
  session.world().barrier();
  Options options;
  options.only = "^files/files";
  options.paths = paths_of(config, session.world());
  std::vector<Verdict> bad;
  for (const Verdict& v : run(session, options).verdicts)
    if (v.level != Level::fine) bad.push_back(v);
  return bad;
}

TEST(Check, ADataFileThatOneRankLacks) {
  auto& session = comm::Session::current();
  if (session.size() == 1) GTEST_SKIP() << "needs another rank that has it";
  for (const int files : {1, 2, 4})
    for (const int lacking : {0, session.size() - 1})
      for (const bool dangling : {false, true}) {
        const auto bad = of_data(session, files, lacking, dangling);
        ASSERT_EQ(bad.size(), 1U) << files << " files, not on rank " << lacking;
        const auto last =
            fmt::format("n{}.json' {}", files - 1, dangling ? "is a link to 'nowhere', which does not exist" : "does not exist");
        EXPECT_NE(bad[0].text.find(last), std::string::npos) << bad[0].text;
      }
  EXPECT_TRUE(of_data(session, 2, -1, false).empty());
}

TEST(Check, ARefusedRunIsAProblemAndLeavesNoRoomToJudge) {
  Options options;
  options.only = "^run/";
  options.run = []() -> RunForecast { fail_config("no such template"); };
  const auto refused = run(comm::Session::current(), options);
  EXPECT_THROW(std::rethrow_exception(refused.refusal), ConfigError);
  ASSERT_EQ(refused.verdicts.size(), 1U);
  EXPECT_EQ(refused.verdicts[0].text, "no such template");
  options.layout = "4 ranks = data 2 x tensor 2 x context 1";
  const auto laid_out = run(comm::Session::current(), options);
  ASSERT_EQ(laid_out.verdicts.size(), 2U);
  EXPECT_EQ(laid_out.verdicts[0].text, options.layout) << "also of a refused run";
  options.run = [] { return RunForecast{{"it fits"}, 0, 0, 0}; };
  EXPECT_TRUE(run(comm::Session::current(), options).passed());
}

TEST(Check, OnlyMustFitAProbe) {
  Options options;
  options.only = "nothing of the kind";
  EXPECT_THROW(run(comm::Session::current(), options), ConfigError);
  options.only = "(";
  EXPECT_THROW(run(comm::Session::current(), options), ConfigError);
}

}  // namespace
}  // namespace qft::check
