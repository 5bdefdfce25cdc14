#include "device/memory_limits.h"

#include "qft/core/error.h"
#include "qft/device/memory.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "../../src/device/memory_limits.h"
#include "io/temp_dir.h"
#include <gtest/gtest.h>

namespace qft::device {
namespace {

namespace fs = std::filesystem;

/// A machine simulated by files.
class FakeRoot {
 public:
  FakeRoot(const std::string& mountinfo, const std::string& cgroup) {
    write("proc/self/mountinfo", "22 27 0:21 / /proc rw - proc proc rw\n" + mountinfo);
    write("proc/self/cgroup", cgroup);
  }
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((dir_.path() / name).parent_path());
    std::ofstream(dir_.path() / name) << text;
  }
  fs::path path() const { return dir_.path(); }
  /// Returns: source relative to the root -> bytes, used
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> limits() const {
    std::map<std::string, std::pair<std::int64_t, std::int64_t>> found;
    for (const JobLimit& l : job_limits(path())) {
      const std::string source = l.source.starts_with('/') ? fs::path(l.source).lexically_relative(path()).string() : l.source;
      found[source] = {l.bytes, l.used.value_or(-1)};
    }
    return found;
  }

 private:
  test::TempDir dir_;
};

using Limits = std::map<std::string, std::pair<std::int64_t, std::int64_t>>;
const std::string kVersion1 =
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
    "34 31 0:31 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n";
const std::string kVersion2 = "41 31 0:38 / /sys/fs/cgroup rw,nosuid shared:4 master:1 - cgroup2 cgroup2 rw,nsdelegate\n";

class JobLimits : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kVariables) unsetenv(name);
  }
  void TearDown() override { SetUp(); }
  static constexpr const char* kVariables[] = {"SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU", "SLURM_CPUS_ON_NODE",
                                               "SLURM_MEM_PER_GPU", "SLURM_GPUS_ON_NODE"};
};

TEST_F(JobLimits, OfVersion2AreThoseOfEveryGroupAroundTheProcess) {
  const FakeRoot root(kVersion2, "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n");
  const std::string job = "sys/fs/cgroup/system.slice/slurmstepd.scope/job_7";
  root.write(job + "/memory.max", "4000000000\n");
  root.write(job + "/memory.high", "3900000000\n");
  root.write(job + "/memory.current", "1500000000\n");
  root.write(job + "/memory.stat",
             "anon 400000000\nfile 1100000000\nshmem 100000000\ninactive_file 700000000\nactive_file 300000000\n");
  root.write(job + "/step_0/user/task_0/memory.max", "max\n");
  root.write("sys/fs/cgroup/system.slice/memory.max", "9000000000\n");
  root.write("sys/fs/cgroup/system.slice/memory.current", "2000000000\n");
  EXPECT_EQ(root.limits(), (Limits{{job + "/memory.max", {4000000000, 500000000}},
                                   {job + "/memory.high", {3900000000, 500000000}},
                                   {"sys/fs/cgroup/system.slice/memory.max", {9000000000, 2000000000}}}));
}

TEST_F(JobLimits, OfVersion1AreThoseOfTheMemoryController) {
  const FakeRoot root(kVersion1, "9:cpu,cpuacct:/slurm\n4:memory:/slurm/uid_0/job_7\n0::/\n");
  root.write("sys/fs/cgroup/memory/slurm/uid_0/job_7/memory.limit_in_bytes", "2000000000\n");
  root.write("sys/fs/cgroup/memory/slurm/uid_0/job_7/memory.usage_in_bytes", "900000000\n");
  root.write("sys/fs/cgroup/memory/slurm/uid_0/job_7/memory.stat",
             "inactive_file 1\ntotal_inactive_file 500000000\ntotal_active_file 100000000\n");
  root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  root.write("sys/fs/cgroup/cpu,cpuacct/slurm/memory.limit_in_bytes", "1\n");  // not a memory controller
  const auto limits = root.limits();
  EXPECT_EQ(limits.at("sys/fs/cgroup/memory/slurm/uid_0/job_7/memory.limit_in_bytes"),
            std::pair(INT64_C(2000000000), INT64_C(300000000)));
  EXPECT_EQ(limits.size(), 2U);
}

TEST_F(JobLimits, HybridSystemsHaveBothVersions) {
  const FakeRoot root(kVersion1 + "42 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
                      "4:memory:/job\n1:name=systemd:/x\n0::/job\n");
  root.write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "5\n");
  root.write("sys/fs/cgroup/unified/job/cgroup.procs", "1\n");
  EXPECT_EQ(root.limits(), (Limits{{"sys/fs/cgroup/memory/job/memory.limit_in_bytes", {5, 0}}}));
}

TEST_F(JobLimits, AContainerWithThePathFromOutsideSeesItsOwnGroupAtTheMountPoint) {
  for (const std::string mounted : {"/kubepods/pod1", "/", "/elsewhere"}) {
    SCOPED_TRACE(mounted);
    const FakeRoot root("41 31 0:38 " + mounted + " /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "0::/kubepods/pod1\n");
    root.write("sys/fs/cgroup/memory.max", "7\n");
    EXPECT_EQ(root.limits(), (Limits{{"sys/fs/cgroup/memory.max", {7, 0}}}));
  }
  const FakeRoot outside(kVersion2, "0::/../other\n");  // another process's namespace
  outside.write("sys/fs/cgroup/memory.max", "8\n");
  EXPECT_EQ(outside.limits(), (Limits{{"sys/fs/cgroup/memory.max", {8, 0}}}));
}

TEST_F(JobLimits, MountPointsMayHaveBlanks) {
  const FakeRoot root("41 31 0:38 / /my\\040groups rw - cgroup2 cgroup2 rw\n", "0::/a b\n");
  root.write("my groups/a b/memory.max", "9\n");
  EXPECT_EQ(root.limits(), (Limits{{"my groups/a b/memory.max", {9, 0}}}));
}

TEST_F(JobLimits, SlurmsAllocationCounts) {
  const FakeRoot root("", "");
  setenv("SLURM_MEM_PER_NODE", "3000", 1);
  EXPECT_EQ(root.limits(), (Limits{{"SLURM_MEM_PER_NODE", {3000LL << 20, -1}}}));
  setenv("SLURM_MEM_PER_NODE", "0", 1);  // --mem=0: the whole node
  setenv("SLURM_MEM_PER_CPU", "500", 1);
  EXPECT_EQ(root.limits(), Limits{}) << "of how many?";
  setenv("SLURM_CPUS_ON_NODE", "4", 1);
  EXPECT_EQ(root.limits(), (Limits{{"SLURM_MEM_PER_CPU x SLURM_CPUS_ON_NODE", {2000LL << 20, -1}}}));
  setenv("SLURM_MEM_PER_CPU", "much", 1);
  EXPECT_THROW(job_limits(root.path()), ConfigError);
}

TEST_F(JobLimits, TheSmallestBoundsWhatAProcessMayTake) {
  setenv("SLURM_MEM_PER_NODE", "2048", 1);
  EXPECT_LE(host_memory_limit().bytes, INT64_C(2) << 30);
  EXPECT_EQ(host_memory_limit().source, "SLURM_MEM_PER_NODE");
  const std::int64_t own = host_memory().current;
  const double half = static_cast<double>((INT64_C(1) << 30) - own);
  EXPECT_NEAR(static_cast<double>(memory_left(c10::kCPU, 2)), half, 2e7);
  EXPECT_NEAR(static_cast<double>(host_memory_available()), half + static_cast<double>(INT64_C(1) << 30), 2e7);
}

TEST(Cgroups, OfAnotherControllerAreFoundAlike) {
  const FakeRoot root(kVersion1, "9:cpu,cpuacct:/slurm\n4:memory:/m\n0::/\n");
  root.write("sys/fs/cgroup/cpu,cpuacct/slurm/cpu.cfs_quota_us", "-1\n");
  const auto groups = cgroups("cpu", root.path());
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0].dir, root.path() / "sys/fs/cgroup/cpu,cpuacct/slurm");
  EXPECT_FALSE(groups[0].unified);
}

}  // namespace
}  // namespace qft::device
