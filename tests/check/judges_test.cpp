// Tests the judges of `qft check` with made-up facts.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "check/probe.h"
#include "test_paths.h"
#include <gtest/gtest.h>

namespace qft::check {
namespace {

const Probe& probe_named(const std::string& name) {
  const auto all = probes();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Probe& p) { return p.name == name; });
  if (found == all.end()) throw std::runtime_error("no probe " + name);
  return *found;
}

/// Nodes with names and equally many ranks, and a judge's verdicts on their facts.
class Judges : public testing::Test {
 protected:
  Facts nodes(int count, const Json& each, int ranks_per_node = 1) {
    Facts facts{{}, {}, options_};
    for (int n = 0; n < count; ++n)
      for (int r = 0; r < ranks_per_node; ++r) {
        facts.places.push_back({"node" + std::to_string(n), n, r});
        facts.of.push_back(each);
      }
    return facts;
  }
  std::vector<Verdict> judge(const std::string& name, const Facts& facts) {
    std::vector<Verdict> verdicts;
    const Probe& probe = probe_named(name);
    Judgement out(probe, facts, verdicts);
    probe.judge(facts, out);
    return verdicts;
  }
  Verdict only(const std::string& name, const Facts& facts) {
    const auto verdicts = judge(name, facts);
    EXPECT_EQ(verdicts.size(), 1U);
    return verdicts.empty() ? Verdict{} : verdicts.front();
  }
  Options options_;
};

Json link(const std::string& name, std::int64_t megabits, int mtu, const std::string& address) {
  return {{"name", name},         {"up", true},         {"loopback", false}, {"mtu", mtu},
          {"megabits", megabits}, {"address", address}, {"prefix", 24}};
}
Json network(const Json& links) {
  return {{"interfaces", links},   {"include", ""},          {"exclude", "lo"}, {"nccl", ""},
          {"nccl_ib_disable", ""}, {"ports", Json::array()}, {"gpus", false},   {"gpu_direct", false}};
}

TEST_F(Judges, TheTableIsInOrder) {
  std::set<std::string> names;
  std::set<Gather> gatherers;
  Gather last = nullptr;
  for (const Probe& p : probes()) {
    EXPECT_TRUE(names.insert(p.name).second) << p.name << " is listed twice";
    if (p.gather != last) {
      EXPECT_TRUE(gatherers.insert(p.gather).second) << p.name << ": rows with one gatherer must follow each other";
    }
    last = p.gather;
  }
  const auto index = [](const std::string& name) { return &probe_named(name) - probes().data(); };
  EXPECT_LT(index("files"), index("run"));
  EXPECT_LT(index("run"), index("qft version")) << "the run file comes first";
}

TEST_F(Judges, TheDocumentHasTheTable) {
  std::ifstream in(std::filesystem::path(qft::test::kSourceDir) / "docs/clusters.md");
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  EXPECT_NE(text.find("<!-- probes -->\n" + describe_probes() + "<!-- end of probes -->"), std::string::npos)
      << "docs/clusters.md lacks:\n"
      << describe_probes();
}

TEST_F(Judges, TheMinorityIsNamed) {
  auto facts = nodes(3, {{"mpi", "Open MPI v4"}});
  EXPECT_EQ(only("MPI", facts).level, Level::fine);
  facts.of[2]["mpi"] = "Open MPI v5";
  const auto verdict = only("MPI", facts);
  EXPECT_EQ(verdict.level, Level::problem);
  EXPECT_EQ(verdict.text, "Open MPI v4 on node0, node1; Open MPI v5 on node2");
  EXPECT_EQ(verdict.nodes, std::vector<std::string>{"node2"});
  EXPECT_NE(verdict.remedy.find("MPI module"), std::string::npos);
}

TEST_F(Judges, OfTwoNodesNoneIsBlamedForDiffering) {
  auto facts = nodes(2, {{"torch", "2.11"}});
  facts.of[1]["torch"] = "2.12";
  EXPECT_TRUE(only("LibTorch", facts).nodes.empty());
}

TEST_F(Judges, ARankIsNamedWithItsNode) {
  auto facts = nodes(2, {{"cpu", "A"}}, 4);
  facts.of[6]["cpu"] = "B";
  const auto verdict = only("CPU model", facts);
  EXPECT_EQ(verdict.level, Level::warning);
  EXPECT_NE(verdict.text.find("B on rank 6 (node1)"), std::string::npos) << verdict.text;
}

TEST_F(Judges, MemoryIsShared) {
  auto facts = nodes(2, {{"memory", std::int64_t{8} << 30}, {"local_size", 2}}, 2);
  EXPECT_EQ(only("memory", facts).level, Level::fine);
  facts.of[2]["memory"] = facts.of[3]["memory"] = std::int64_t{1} << 30;
  EXPECT_EQ(only("memory", facts).nodes, std::vector<std::string>{"node1"});
}

TEST_F(Judges, BindingThreadsAndLoad) {
  const Json each = {{"threads", 4}, {"threads_advice", ""}, {"cpus", {0, 1, 2, 3}}, {"load", 1.0}, {"node_cpus", 4}};
  auto facts = nodes(3, each);
  for (const char* name : {"binding", "oversubscription", "load"}) EXPECT_EQ(only(name, facts).level, Level::fine) << name;
  facts.of[1]["threads"] = 8;
  facts.of[2]["threads_advice"] = "4 ranks are bound to one core";
  facts.of[0]["load"] = 40.0;
  EXPECT_EQ(judge("binding", facts).size(), 2U);
  EXPECT_NE(only("oversubscription", facts).text.find("8 compute threads share 4 CPUs on node1"), std::string::npos);
  EXPECT_EQ(only("load", facts).nodes, std::vector<std::string>{"node0"});
}

TEST_F(Judges, LockedMemoryMattersBesideRdma) {
  auto facts = nodes(2, {{"memlock", 65536}, {"rdma", false}});
  EXPECT_EQ(only("locked memory", facts).level, Level::fine);
  facts.of[0]["rdma"] = facts.of[1]["rdma"] = true;
  EXPECT_EQ(only("locked memory", facts).level, Level::problem);
  facts.of[0]["memlock"] = -1;
  EXPECT_EQ(only("locked memory", facts).nodes, std::vector<std::string>{"node1"});
}

TEST_F(Judges, SharedMemoryIsNeededByRanksOfOneNode) {
  auto facts = nodes(2, {{"shm", 1 << 20}, {"shm_size", 1 << 20}, {"local_size", 1}, {"gpus", false}});
  EXPECT_EQ(only("/dev/shm", facts).level, Level::warning);
  facts.of[1]["local_size"] = 2;
  EXPECT_EQ(only("/dev/shm", facts).level, Level::problem);
}

TEST_F(Judges, InterfacesSpeedsAndMtus) {
  auto facts = nodes(3, {});
  for (int n = 0; n < 3; ++n) facts.of[n] = network(Json::array({link("eth0", 100'000, 9000, fmt::format("10.0.0.{}", n + 1))}));
  for (const char* name : {"interface", "addresses", "link speed", "MTU"})
    EXPECT_EQ(only(name, facts).level, Level::fine) << name;
  facts.of[2]["interfaces"][0]["mtu"] = 1500;
  facts.of[1]["interfaces"][0]["megabits"] = 1000;
  EXPECT_EQ(only("MTU", facts).text, "10.0.0.0/24: 9000 on node0, node1; 1500 on node2");
  EXPECT_EQ(only("MTU", facts).nodes, std::vector<std::string>{"node2"});
  const auto speed = judge("link speed", facts);
  ASSERT_EQ(speed.size(), 2U);  // the slow node, and that only Gigabit is left
  EXPECT_EQ(speed[0].nodes, std::vector<std::string>{"node1"});
  EXPECT_EQ(speed[1].text, "the fastest network that all nodes share has 1 Gb/s");
  facts.of[1]["interfaces"] = Json::array();
  EXPECT_EQ(only("interface", facts).nodes, std::vector<std::string>{"node1"});
}

TEST_F(Judges, AGigabitThatTheMachineFileNamesIsNoFault) {
  auto facts = nodes(2, {});
  for (int n = 0; n < 2; ++n) facts.of[n] = network(Json::array({link("eth0", 1000, 1500, fmt::format("10.0.0.{}", n + 1))}));
  EXPECT_EQ(only("link speed", facts).level, Level::problem);
  options_.expected = {"lab", 0.118e9};
  EXPECT_EQ(only("link speed", facts).level, Level::fine);
}

TEST_F(Judges, BridgesOfContainersHaveTheSameAddress) {
  auto facts = nodes(2, {});
  for (int n = 0; n < 2; ++n)
    facts.of[n] = network({link("eth0", 10'000, 9000, fmt::format("10.0.0.{}", n + 1)), link("docker0", 0, 1500, "172.17.0.1")});
  const auto verdict = only("addresses", facts);
  EXPECT_EQ(verdict.level, Level::warning);
  EXPECT_NE(verdict.text.find("docker0 has the same address, 172.17.0.1"), std::string::npos) << verdict.text;
}

TEST_F(Judges, NodesInOtherNetworksAreTold) {
  auto facts = nodes(2, {});
  for (int n = 0; n < 2; ++n) facts.of[n] = network(Json::array({link("eth0", 10'000, 9000, fmt::format("10.0.{}.1", n))}));
  EXPECT_EQ(only("interface", facts).level, Level::warning);
}

Json wire(const Json& pairs, const std::string& used = "eth0", std::int64_t rdma = -1) {
  Json facts = {{"pairs", pairs},
                {"sent", {{used, 1'000'000'000}}},
                {"rdma", Json::object()},
                {"interfaces", {link("eth0", 10'000, 9000, "10.0.0.1"), link("ib0", 200'000, 9000, "10.1.0.1")}}};
  if (rdma >= 0) facts["rdma"]["mlx5_0:1"] = rdma;
  return facts;
}

TEST_F(Judges, OneSlowCableIsNamed) {
  Json pairs = Json::array();
  for (int a = 0; a < 4; ++a)
    for (int b = 0; b < 4; ++b)
      if (a != b) pairs.push_back({a, b, (a == 1 && b == 2) || (a == 2 && b == 1) ? 0.1e9 : 1e9});
  const auto facts = nodes(4, wire(pairs));
  const auto verdict = only("pairs of nodes", facts);
  EXPECT_EQ(verdict.level, Level::problem);
  EXPECT_TRUE(verdict.nodes.empty()) << "either end may be at fault";
  EXPECT_NE(verdict.text.find("node1 to node2 100.00 MB/s"), std::string::npos) << verdict.text;
}

TEST_F(Judges, ASlowNodeIsNamedAlsoInOneDirection) {
  for (const bool both : {true, false}) {
    Json pairs = Json::array();
    for (int a = 0; a < 4; ++a)
      for (int b = 0; b < 4; ++b)
        if (a != b) pairs.push_back({a, b, a == 3 || (both && b == 3) ? 0.01e9 : 1e9});
    EXPECT_EQ(only("pairs of nodes", nodes(4, wire(pairs))).nodes, std::vector<std::string>{"node3"}) << both;
  }
}

TEST_F(Judges, RatesAreHeldAgainstTheLinkAndTheMachine) {
  const auto level = [&](double rate) { return only("pairs of nodes", nodes(2, wire({{0, 1, rate}, {1, 0, rate}}))).level; };
  EXPECT_EQ(level(1.1e9), Level::fine);
  EXPECT_EQ(level(0.4e9), Level::warning);
  EXPECT_EQ(level(0.118e9), Level::problem);
  options_.expected = {"lab", 1.2e9};
  EXPECT_EQ(level(1.1e9), Level::fine);
  EXPECT_EQ(level(0.9e9), Level::warning);
  EXPECT_EQ(level(0.4e9), Level::problem);
  options_.expected = {"lab", 0.118e9};
  EXPECT_EQ(level(0.117e9), Level::fine);
}

TEST_F(Judges, OneConnectionNeedNotFillAFastLink) {
  for (const auto& [rate, level] : {std::pair{2e9, Level::warning}, {0.9e9, Level::problem}}) {
    auto facts = nodes(2, wire({{0, 1, rate}, {1, 0, rate}}));
    for (Json& node : facts.of) node["interfaces"] = Json::array({link("eth0", 200'000, 9000, "10.0.0.1")});
    EXPECT_EQ(only("pairs of nodes", facts).level, level) << rate;
  }
}

TEST_F(Judges, TheRouteAndRdma) {
  const Json pairs = {{0, 1, 1e9}, {1, 0, 1e9}};
  const auto route = only("route", nodes(2, wire(pairs)));
  EXPECT_EQ(route.level, Level::problem);
  EXPECT_NE(route.text.find("eth0, but faster interfaces exist: ib0 (10.1.0.1, 200000 Mb/s)"), std::string::npos) << route.text;
  EXPECT_EQ(only("route", nodes(2, wire(pairs, "ib0"))).level, Level::fine);
  EXPECT_EQ(only("route", nodes(2, wire(pairs, "eth0", 2'000'000'000))).text, "messages went by RDMA");
  auto alone = nodes(2, wire(pairs));
  alone.of[1]["interfaces"].erase(1);
  EXPECT_EQ(only("route", alone).level, Level::warning) << "no other node is in that network";
  EXPECT_TRUE(judge("RDMA", nodes(2, wire(pairs))).empty());
  EXPECT_EQ(only("RDMA", nodes(2, wire(pairs, "eth0", 0))).level, Level::warning);
  EXPECT_EQ(only("RDMA", nodes(2, wire(pairs, "eth0", 2'000'000'000))).level, Level::fine);
}

TEST_F(Judges, ClocksAreHeldAgainstTheMedian) {
  auto facts = nodes(3, {{"ahead", {0.0, 90.0, 90.1}}});
  const auto verdict = only("clocks", facts);
  EXPECT_EQ(verdict.level, Level::problem);
  EXPECT_EQ(verdict.nodes, std::vector<std::string>{"node0"});
  facts.of[0]["ahead"] = {0.0, 0.01, -0.02};
  EXPECT_EQ(only("clocks", facts).level, Level::fine);
  facts.of[0]["ahead"] = {0.0, 0.01, -3.0};
  EXPECT_EQ(only("clocks", facts).level, Level::warning);
}

TEST_F(Judges, PacketsThatDoNotArrive) {
  auto facts = nodes(3, {{"mtu", 9000}, {"small", true}, {"whole", true}});
  EXPECT_EQ(only("path MTU", facts).level, Level::fine);
  facts.of[1]["whole"] = false;
  EXPECT_NE(only("path MTU", facts).text.find("the MTU on node0, do not arrive on node1"), std::string::npos);
  facts.of[1]["small"] = false;
  EXPECT_EQ(only("path MTU", facts).level, Level::fine) << "a firewall proves nothing";
}

TEST_F(Judges, NcclAndGpuDirect) {
  auto facts = nodes(2, {});
  for (int n = 0; n < 2; ++n) {
    facts.of[n] = network({link("eth0", 10'000, 9000, fmt::format("10.0.0.{}", n + 1)),
                           link("eth1", 10'000, 9000, fmt::format("10.{}.1.1", n + 1))});
    facts.of[n]["ports"] = Json::array({{{"name", "mlx5_0:1"}, {"state", "ACTIVE"}, {"gigabits", 200.0}}});
    facts.of[n]["gpus"] = true;
    facts.of[n]["nccl"] = "=eth0";
  }
  EXPECT_EQ(only("NCCL interface", facts).level, Level::fine);
  facts.of[1]["nccl"] = "=eth1";
  EXPECT_EQ(only("NCCL interface", facts).level, Level::warning);
  facts.of[1]["nccl"] = "ens";
  EXPECT_EQ(only("NCCL interface", facts).level, Level::problem);
  EXPECT_EQ(only("GPUDirect", facts).level, Level::warning);
  facts.of[0]["gpu_direct"] = facts.of[1]["gpu_direct"] = true;
  EXPECT_EQ(only("GPUDirect", facts).level, Level::fine);
  facts.of[1]["nccl_ib_disable"] = "1";
  EXPECT_EQ(only("GPUDirect", facts).nodes, std::vector<std::string>{"node1"});
}

Json file(std::uint64_t size, const std::string& hash) {
  return {{"size", size}, {"hash", hash}};
}

TEST_F(Judges, FilesThatAreMissingOrDiffer) {
  options_.paths = {{"model_name_or_path", "/m", NeededPath::Use::read}};
  const Json whole = {{"paths", Json::array({{{"config.json", file(10, "aa")}, {"model.safetensors", file(1000, "bb")}}})}};
  auto facts = nodes(3, whole);
  EXPECT_NE(only("files", facts).text.find("2 files, 1.01 kB"), std::string::npos);
  facts.of[1]["paths"][0]["model.safetensors"] = file(1000, "cc");
  facts.of[2]["paths"][0].erase("config.json");
  const auto verdicts = judge("files", facts);
  ASSERT_EQ(verdicts.size(), 2U);
  EXPECT_EQ(verdicts[0].text, "model_name_or_path: '/m/config.json' is not there on node2");
  EXPECT_EQ(verdicts[1].nodes, std::vector<std::string>{"node1"});
  auto gone = nodes(3, whole);
  gone.of[0]["paths"][0] = {{"", {{"error", "does not exist"}}}};
  EXPECT_EQ(only("files", gone).text, "model_name_or_path: '/m' does not exist on node0");
}

TEST_F(Judges, RoomForTheCheckpoints) {
  const Json disk = {{"folder", "/out"}, {"free", 1'000'000}};
  Json each = {{"outputs", Json::array({disk})}, {"checkpoint", 300'000}, {"checkpoints", 3}, {"result", 50'000}};
  auto facts = nodes(2, each);
  EXPECT_EQ(only("space", facts).level, Level::fine);
  facts.of[1]["outputs"][0]["free"] = 100'000;
  EXPECT_EQ(judge("space", facts).back().nodes, std::vector<std::string>{"node1"});
  each["checkpoints"] = 4;
  EXPECT_EQ(only("space", nodes(2, each)).level, Level::problem);
  each["checkpoints"] = each["result"] = 0;
  EXPECT_TRUE(judge("space", nodes(2, each)).empty());
}

Json gpu(int index) {
  return {{"index", index},
          {"name", "H"},
          {"uuid", fmt::format("GPU-{}", index)},
          {"memory", 80'000'000'000},
          {"used", 0},
          {"processes", Json::array()},
          {"uncorrected_errors", nullptr},
          {"remap_pending", nullptr},
          {"remap_failed", nullptr},
          {"slowed_by", Json::array()},
          {"clock_mhz", nullptr},
          {"most_clock_mhz", nullptr},
          {"temperature", nullptr},
          {"pcie_lanes", nullptr},
          {"most_pcie_lanes", nullptr},
          {"links_up", 0},
          {"links_down", 0},
          {"peers", Json::array({""})}};
}
Json of_gpus(const Json& gpus) {
  return {{"error", ""},  {"installed", true}, {"lost", Json::array()}, {"pid", 0}, {"driver", "570"}, {"cuda", "12.8"},
          {"gpus", gpus}, {"uuid", ""},        {"unified", false}};
}
Json process(int pid, std::int64_t bytes) {
  return Json::array({{{"pid", pid}, {"bytes", bytes}, {"name", ""}}});
}

TEST_F(Judges, GpusOfTheJobAlone) {
  Json other = gpu(1);
  other["processes"] = process(7, 0);
  auto facts = nodes(1, of_gpus({gpu(0), other}));
  facts.of[0]["uuid"] = "GPU-0";
  EXPECT_EQ(only("GPU memory", facts).level, Level::fine) << "another job's GPU";
  facts.of[0]["uuid"] = "GPU-1";
  EXPECT_NE(only("GPU memory", facts).text.find("GPU 1 of node0 holds memory of other programs: process 7"), std::string::npos);
  options_.use_cpu = true;
  EXPECT_TRUE(judge("GPU memory", facts).empty()) << "the job has none";
  options_.use_cpu = false;
  facts.of[0]["unified"] = true;
  EXPECT_EQ(only("unified memory", facts).level, Level::fine);
  facts.of[0]["gpus"] = Json::array();
  facts.of[0]["error"] = "no NVIDIA driver is installed";
  facts.of[0]["installed"] = false;
  EXPECT_EQ(only("GPU driver", facts).text, "not used: no NVIDIA driver is installed");
  EXPECT_TRUE(judge("GPU clocks", facts).empty());
}

TEST_F(Judges, MemoryOfOwnRanksAndOfServices) {
  Json held = gpu(0);
  held["processes"] = process(7, 1'000'000'000);
  auto facts = nodes(1, of_gpus(Json::array({held})), 2);
  EXPECT_EQ(only("GPU memory", facts).level, Level::problem);
  facts.of[1]["pid"] = 7;
  EXPECT_EQ(only("GPU memory", facts).level, Level::fine) << "a rank of the job";
  facts.of[0]["gpus"][0]["processes"] = process(8, 30'000'000);
  EXPECT_EQ(only("GPU memory", facts).level, Level::warning) << "such as MPS";
}

TEST_F(Judges, ADriverThatIsBrokenEverywhere) {
  auto facts = nodes(1, of_gpus(Json::array()));
  facts.of[0]["error"] = "NVIDIA's driver does not answer: Driver/library version mismatch";
  EXPECT_EQ(only("GPU driver", facts).level, Level::problem);
  options_.use_cpu = true;
  EXPECT_EQ(only("GPU driver", facts).level, Level::warning);
  options_.use_cpu = false;
  for (const bool another : {false, true}) {
    auto node = nodes(1, of_gpus(another ? Json::array({gpu(0)}) : Json::array()));
    node.of[0]["lost"] = {"GPU 1 of 2 does not answer: GPU is lost"};
    const auto verdicts = judge("GPU driver", node);
    ASSERT_FALSE(verdicts.empty());
    EXPECT_EQ(verdicts[0].level, Level::problem);
    EXPECT_EQ(verdicts[0].text, "GPU 1 of 2 does not answer: GPU is lost on node0");
  }
}

TEST_F(Judges, CardsWithoutABridgeHaveAllLinksDown) {
  Json card = gpu(0), second = gpu(1);
  card["links_down"] = second["links_down"] = 4;
  auto facts = nodes(2, of_gpus({card, second}));
  EXPECT_EQ(only("NVLink", facts).level, Level::fine);
  for (int n = 0; n < 2; ++n)
    for (Json& g : facts.of[n]["gpus"]) g["name"] = "NVIDIA A100-SXM4-80GB";
  EXPECT_EQ(judge("NVLink", facts).size(), 4U);
  EXPECT_EQ(judge("NVLink", facts)[0].level, Level::warning);
  facts.of[0]["gpus"][0]["links_up"] = 4;
  facts.of[0]["gpus"][0]["links_down"] = 0;
  const auto verdicts = judge("NVLink", facts);
  ASSERT_EQ(verdicts.size(), 3U) << "all except the one with active links";
  EXPECT_EQ(verdicts[0].text, "GPU 1 of node0 has 4 of 4 NVLinks down");
  EXPECT_EQ(verdicts[0].level, Level::problem);
}

TEST_F(Judges, CollectivesThatAreWrongOrSlow) {
  const auto group_facts = [](const char* wrong, double us, double gb_s) -> Json {
    const Json row = {{"bytes", 8}, {"microseconds", us}, {"bus_gb_s", gb_s}};
    const Json measured = {{"by", "mpi"}, {"wrong", wrong}, {"rows", Json::array({row})}};
    return {{"groups", Json::array({measured})}, {"megabits", 0}};
  };
  auto facts = nodes(2, group_facts("", 20, 1.1));
  for (const char* name : {"values", "latency", "all-reduce"}) EXPECT_EQ(only(name, facts).level, Level::fine) << name;
  facts.of.assign(2, group_facts("", 5000, 0.05));
  facts.of[1]["groups"][0]["wrong"] = "all_reduce of f32";
  EXPECT_EQ(only("values", facts).nodes, std::vector<std::string>{"node1"});
  EXPECT_EQ(only("latency", facts).level, Level::warning);
  EXPECT_EQ(only("all-reduce", facts).level, Level::warning);
  options_.expected = {"lab", 1e9};
  EXPECT_EQ(only("all-reduce", facts).level, Level::problem);
}

TEST_F(Judges, AnAllReduceFarBelowTheLink) {
  const auto at_rate = [&](double gb_s, std::int64_t slowest) {
    const Json row = {{"bytes", 8}, {"microseconds", 20}, {"bus_gb_s", gb_s}};
    auto facts =
        nodes(2, {{"groups", Json::array({{{"by", "mpi"}, {"wrong", ""}, {"rows", Json::array({row})}}})}, {"megabits", 25000}});
    facts.of[1]["megabits"] = slowest;
    return only("all-reduce", facts);
  };
  EXPECT_EQ(at_rate(2.0, 25000).level, Level::fine);
  EXPECT_EQ(at_rate(1.2, 25000).level, Level::warning);
  EXPECT_EQ(at_rate(0.5, 25000).level, Level::problem);
  EXPECT_EQ(at_rate(0.5, 1000).level, Level::fine) << "the slower node's link";
  EXPECT_EQ(at_rate(0.5, 0).level, Level::fine) << "a node with an unknown link rate";
  EXPECT_EQ(at_rate(1.2, 400000).level, Level::warning) << "one TCP connection never fills such a link";
}

TEST_F(Judges, TheReportEndsWithTheNodesToLeaveOut) {
  Report report;
  report.verdicts = {{Level::fine, "a", "x", "", {}}, {Level::warning, "b", "y", "z", {"node5"}}};
  EXPECT_TRUE(report.passed());
  EXPECT_EQ(summary(report), "check passed: 1 fine, 1 warning, 0 problems\n");
  report.verdicts.push_back({Level::problem, "c", "y", "mend it", {"node9", "node3"}});
  report.verdicts.push_back({Level::problem, "d", "y", "mend it", {"node3"}});
  EXPECT_EQ(summary(report), "check failed: 1 fine, 1 warning, 2 problems\n--exclude=node3,node9\n");
  EXPECT_EQ(to_text(report.verdicts[2]), "FAIL  c: y\n      -> mend it\n");
}

}  // namespace
}  // namespace qft::check
