#include "qft/job/preflight.h"

#include "qft/comm/bandwidth.h"
#include "qft/comm/exchange.h"
#include "qft/core/error.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "job/preflight_parts.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace qft::job {
namespace {

namespace fs = std::filesystem;

const Finding* find(const std::vector<Finding>& findings, const std::string& topic) {
  const auto at = std::find_if(findings.begin(), findings.end(), [&](const Finding& f) { return f.topic == topic; });
  return at == findings.end() ? nullptr : &*at;
}

std::vector<nlohmann::json> two_ranks() {
  const auto own = gather_facts(comm::Session::current(), c10::kCPU);
  auto other = own;
  other["rank"] = 1;
  return {own, other};
}

TEST(Preflight, PassesOnThisMachine) {
  const auto report = run_preflight(comm::Session::current(), {.paths = {}, .largest_message = 1 << 16});
  for (const auto& f : report.findings) {
    EXPECT_NE(f.level, Finding::Level::problem) << f.topic << ": " << f.text;
  }
  const auto* values =
      find(report.findings, std::string("collectives (") + std::string(comm::Session::current().world().backend()) + ")");
  ASSERT_NE(values, nullptr);
  EXPECT_EQ(values->text, "values are right on all ranks");
  const auto json = to_json(report);
  EXPECT_TRUE(json.at("passed").get<bool>());
  EXPECT_EQ(json.at("ranks").size(), static_cast<std::size_t>(comm::Session::current().size()));
  EXPECT_TRUE(report.passed());
}

TEST(Preflight, NamesMissingFilesTheirKeyAndRanks) {
  auto& session = comm::Session::current();
  const auto here =
      fs::temp_directory_path() / ("qft-preflight-" + comm::broadcast_string(session.world(), std::to_string(getpid())));
  if (session.rank() == 0) fs::create_directories(here / "model");
  session.world().barrier();
  PreflightOptions options;
  options.largest_message = 64;
  options.paths = {{"model_name_or_path", here / "model", NeededPath::Use::read},
                   {"pack", here / "no.h5", NeededPath::Use::read},
                   {"export_dir", "/proc/qft/out", NeededPath::Use::write},
                   {"output_dir", here / "out/run1", NeededPath::Use::write}};
  const auto report = run_preflight(session, options);
  EXPECT_FALSE(report.passed());
  EXPECT_EQ(find(report.findings, "model_name_or_path")->level, Finding::Level::fine);
  const auto* pack = find(report.findings, "pack");
  EXPECT_EQ(pack->level, Finding::Level::problem);
  EXPECT_NE(pack->text.find("no.h5 does not exist on all ranks"), std::string::npos) << pack->text;
  EXPECT_FALSE(pack->advice.empty());
  const auto* unwritable = find(report.findings, "export_dir");
  EXPECT_EQ(unwritable->level, Finding::Level::problem);
  EXPECT_NE(unwritable->text.find("could not be made in /proc"), std::string::npos) << unwritable->text;
  const auto* out = find(report.findings, "output_dir");
  EXPECT_NE(out->text.find("shared by all ranks"), std::string::npos) << out->text;
  EXPECT_FALSE(report.passed());
  session.world().barrier();
  if (session.rank() == 0) {
    EXPECT_EQ(std::distance(fs::directory_iterator(here), fs::directory_iterator()), 1) << "a probe file was left behind";
    fs::remove_all(here);
  }
}

TEST(Preflight, OtherVersionsOnARankAreAProblem) {
  auto facts = two_ranks();
  facts[1]["mpi"] = "Open MPI v5";
  std::vector<Finding> findings;
  compare_facts(facts, findings);
  const auto* mpi = find(findings, "MPI library");
  EXPECT_EQ(mpi->level, Finding::Level::problem);
  EXPECT_NE(mpi->text.find("Open MPI v5 on rank 1"), std::string::npos) << mpi->text;
  EXPECT_EQ(find(findings, "LibTorch")->level, Finding::Level::fine);
}

TEST(Preflight, OtherVariablesThreadsAndMemoryAreSeen) {
  auto facts = two_ranks();
  facts[1]["variables"]["OMP_NUM_THREADS"] = "99";
  facts[1]["threads"] = 99;
  facts[1]["memory_available"] = 1 << 20;
  std::vector<Finding> findings;
  compare_facts(facts, findings);
  EXPECT_NE(find(findings, "OMP_NUM_THREADS")->text.find("99 on rank 1"), std::string::npos);
  EXPECT_EQ(find(findings, "compute threads")->level, Finding::Level::note);
  EXPECT_EQ(find(findings, "memory")->level, Finding::Level::problem);
  EXPECT_NE(find(findings, "memory")->text.find("too little on rank 1"), std::string::npos);
}

TEST(Bandwidth, RowsAreConsistent) {
  auto& world = comm::Session::current().world();
  for (const auto kind : {comm::OpKind::all_reduce, comm::OpKind::all_gather, comm::OpKind::reduce_scatter,
                          comm::OpKind::broadcast, comm::OpKind::all_to_all}) {
    const auto row = comm::measure(world, c10::kCPU, kind, 5000, 0.001);
    const auto each = sizeof(float) * static_cast<std::size_t>(world.size());
    EXPECT_EQ(row.bytes, 5000 / each * each);
    EXPECT_GT(row.microseconds, 0);
    EXPECT_NEAR(row.algorithm_gb_s, static_cast<double>(row.bytes) / row.microseconds / 1e3, 1e-6 * row.algorithm_gb_s);
    EXPECT_DOUBLE_EQ(row.bus_gb_s, row.algorithm_gb_s * bus_factor(kind, world.size()));
  }
}

TEST(Bandwidth, FactorsSizesAndWords) {
  EXPECT_DOUBLE_EQ(comm::bus_factor(comm::OpKind::all_reduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(comm::bus_factor(comm::OpKind::all_gather, 4), 0.75);
  EXPECT_EQ(comm::bandwidth_sizes(100), (std::vector<std::size_t>{8, 64, 100}));
  EXPECT_EQ(comm::parse_collective("reduce_scatter"), comm::OpKind::reduce_scatter);
  EXPECT_THROW(comm::parse_collective("send"), ConfigError);
}

TEST(Bandwidth, VerificationPasses) {
  EXPECT_TRUE(comm::verify_collectives(comm::Session::current().world(), c10::kCPU).empty());
}

}  // namespace
}  // namespace qft::job
