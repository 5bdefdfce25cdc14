#include "qft/plan/machine.h"

#include "qft/core/error.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "io/temp_dir.h"
#include "test_paths.h"
#include <gtest/gtest.h>

namespace qft::plan {
namespace {

namespace fs = std::filesystem;

class MachineFile : public ::testing::Test {
 protected:
  MachineFile() : path_(fs::temp_directory_path() / ("machine-" + std::to_string(getpid()) + ".yaml")) {}
  ~MachineFile() override { fs::remove(path_); }
  Machine read(const std::string& text) {
    std::ofstream(path_) << text;
    return Machine::load(path_);
  }
  std::string error_of(const std::string& text) {
    try {
      read(text);
    } catch (const ConfigError& e) {
      return e.what();
    }
    return "";
  }
  fs::path path_;
};

constexpr const char* kLeast = "memory_gb: 80\nmemory_gb_s: 2000\n";

TEST_F(MachineFile, SaysFileLineAndNearestNameOfAnUnknownKey) {
  const std::string error = error_of(std::string(kLeast) + "network_gbs: 25\n");
  EXPECT_NE(error.find(".yaml:3: network_gbs: unknown key: did you mean 'network_gb_s'?"), std::string::npos) << error;
}

TEST_F(MachineFile, SaysLineAndValueOfAWrongNumber) {
  const std::string error = error_of("memory_gb: 80\nmemory_gb_s: fast\n");
  EXPECT_NE(error.find(".yaml:2: memory_gb_s"), std::string::npos) << error;
  EXPECT_NE(error.find("fast"), std::string::npos) << error;
  EXPECT_NE(error_of(std::string(kLeast) + "matmul_efficiency: 1.5\n").find("matmul_efficiency"), std::string::npos);
}

TEST_F(MachineFile, NamesWhatIsMissing) {
  EXPECT_NE(error_of("memory_gb: 80\n").find("memory_gb_s is missing"), std::string::npos);
  EXPECT_NE(error_of(std::string(kLeast) + "assumed: [speed]\n").find("'speed' is not a key"), std::string::npos);
  const Machine m = read(kLeast);
  EXPECT_THROW(m.matmul_flops(at::kBFloat16), ConfigError);
  EXPECT_THROW(link_of(m, 2, 1), ConfigError);
}

TEST_F(MachineFile, RefusesNumbersThatNoNodeHas) {
  for (const char* line :
       {"threads_per_rank: 4294967297", "threads_per_rank: -1", "ranks_per_node: 4294967297", "ranks_per_node: 0"}) {
    const std::string error = error_of(std::string(kLeast) + line + "\n"),
                      key = std::string(line).substr(0, std::string(line).find(':'));
    EXPECT_NE(error.find(".yaml:3: " + key), std::string::npos) << line << ": " << error;
  }
}

TEST_F(MachineFile, OfUnifiedMemoryIsSharedByTheRanksOfANode) {
  const std::string text = std::string(kLeast) + "ranks_per_node: 4\n";
  EXPECT_EQ(read(text).memory_of_a_rank(8), 80'000'000'000);
  EXPECT_EQ(read(text + "unified: true\n").memory_of_a_rank(8), 20'000'000'000);
}

TEST_F(MachineFile, IsReadAsWritten) {
  Machine m =
      read(std::string(kLeast) + "name: a b\nassumed: [memory_gb]\nmatmul_tflops_bf16: 0.00001\nnetwork_latency_us: 12.5\n");
  const std::string text = m.to_yaml();
  const Machine again = read(text);
  EXPECT_EQ(again.to_yaml(), text);
  EXPECT_EQ(again.matmul_tflops_bf16, 0.00001);
  EXPECT_EQ(again.name, "a b");
  EXPECT_EQ(again.assumed, std::vector<std::string>{"memory_gb"});
}

TEST(Machines, AllShippedOnesAreRead) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(test::kSourceDir) / "configs/machines")) {
    const Machine m = Machine::load(entry.path());
    EXPECT_FALSE(m.source.empty()) << entry.path();
    EXPECT_GT(m.matmul_tflops_bf16 + m.matmul_tflops_fp16, 0) << entry.path();
    EXPECT_LE(m.name.size(), 100U) << entry.path();
    EXPECT_GT(link_of(m, static_cast<int>(2 * m.ranks_per_node), 1).bytes_per_second, 0) << entry.path();
    for (const std::string& key : m.assumed)
      EXPECT_NE(m.to_yaml().find("\n" + key + ": "), std::string::npos) << entry.path() << " assumes " << key << " and has none";
    ++count;
  }
  EXPECT_GE(count, 12);
}

TEST(Machines, AreFoundByName) {
  setenv("QFT_MACHINES", (fs::path(test::kSourceDir) / "configs/machines").c_str(), 1);
  const auto refused = [](const std::string& asked) -> std::string {
    try {
      find_machine(asked);
    } catch (const ConfigError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(find_machine("h100").memory_gb, 80);
  const Machine faster = find_machine("h100,network_gb_s=368,ranks_per_node=4");
  EXPECT_EQ(faster.network_gb_s, 368);
  EXPECT_EQ(faster.ranks_per_node, 4);
  EXPECT_NE(faster.name.find("network_gb_s=368"), std::string::npos) << "the name shows the change";
  EXPECT_EQ(std::ranges::count(faster.assumed, "network_gb_s"), 0);
  EXPECT_EQ(find_machine(std::string(test::kSourceDir) + "/configs/machines/l4.yaml").memory_gb, 24);
  const std::string unknown = refused("h1000");
  EXPECT_NE(unknown.find("did you mean 'h100'?"), std::string::npos) << unknown;
  EXPECT_NE(unknown.find("a100-40gb, a100-80gb, b200"), std::string::npos) << unknown;
  EXPECT_NE(refused("h100,network_gbs=3").find("did you mean 'network_gb_s'?"), std::string::npos);
  EXPECT_NE(refused("h100,network_gb_s=fast").find("fast"), std::string::npos);
  EXPECT_NE(refused("h100,").find("key=value"), std::string::npos) << refused("h100,");
  const std::string list = list_machines();
  EXPECT_NE(list.find("\nh100 "), std::string::npos) << list;
  EXPECT_EQ(std::ranges::count(list, '\n'),
            std::distance(fs::directory_iterator(fs::path(test::kSourceDir) / "configs/machines"), {}));
  EXPECT_EQ(std::ranges::count(list, '\n'), std::ssize(machine_names()));
  EXPECT_EQ(std::ranges::count(machine_names(), "h100"), 1);
  unsetenv("QFT_MACHINES");
}

/// Finds files of any name and ending; a broken one does not hide others.
TEST(Machines, AreFoundByFile) {
  const fs::path before = fs::current_path();
  const test::TempDir dir;
  fs::create_directory(dir / "a,b");
  for (const char* file : {"clus", "upper.YAML", "short.yml", "a,b/c,d.yaml"})
    std::ofstream(dir / file) << kLeast << "name: '" << file << "'\n";
  std::ofstream(dir / "object.JSON") << R"({"memory_gb": 80, "memory_gb_s": 2000, "name": "object.JSON"})";
  std::ofstream(dir / "broken.yaml") << "memory_gb: [\n";
  fs::current_path(dir.path());
  for (const char* file : {"clus", "upper.YAML", "short.yml", "a,b/c,d.yaml", "object.JSON"}) {
    EXPECT_NO_THROW(EXPECT_EQ(find_machine(file).name, file)) << file;
    EXPECT_NO_THROW(EXPECT_EQ(find_machine(std::string(file) + ",memory_gb=7,network_gb_s=3").memory_gb, 7)) << file;
  }
  fs::current_path(before);
  setenv("QFT_MACHINES", dir.path().c_str(), 1);
  EXPECT_NO_THROW(EXPECT_EQ(find_machine("upper").name, "upper.YAML"));
  EXPECT_NO_THROW({
    const std::string list = list_machines();
    EXPECT_NE(list.find("error: " + (dir / "broken.yaml").string()), std::string::npos) << list;
    EXPECT_NE(list.find("  object.JSON\n"), std::string::npos) << list;
  });
  unsetenv("QFT_MACHINES");
}

TEST(Links, AreTheSlowestOnTheWay) {
  Machine m;
  m.ranks_per_node = 4;
  m.node_gb_s = 100;
  m.node_latency_us = 2;
  m.network_gb_s = 20;
  m.network_latency_us = 10;
  EXPECT_DOUBLE_EQ(link_of(m, 4, 1).bytes_per_second, 100e9);  // inside a node
  EXPECT_DOUBLE_EQ(link_of(m, 4, 1).latency, 2e-6);
  EXPECT_DOUBLE_EQ(link_of(m, 8, 1).bytes_per_second, 20e9);  // one ring uses each node's link
  EXPECT_DOUBLE_EQ(link_of(m, 8, 1).latency, 10e-6);
  EXPECT_DOUBLE_EQ(link_of(m, 2, 4).bytes_per_second, 5e9);  // four rings share it
  m.network_gb_s = 500;
  EXPECT_DOUBLE_EQ(link_of(m, 8, 1).bytes_per_second, 100e9);
  EXPECT_DOUBLE_EQ(link_of(m, 1, 1).bytes_per_second, 0);
}

TEST(Memory, OfANodeIsSharedOnTheCpuOnly) {
  Machine m;
  m.ranks_per_node = 8;
  m.memory_gb = 64;
  EXPECT_EQ(m.memory_of_a_rank(16), 64'000'000'000);
  m.device = "cpu";
  EXPECT_EQ(m.memory_of_a_rank(16), 8'000'000'000);
  EXPECT_EQ(m.memory_of_a_rank(2), 32'000'000'000);
}

}  // namespace
}  // namespace qft::plan
