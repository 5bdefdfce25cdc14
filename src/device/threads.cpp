#include "qft/device/threads.h"

#include "qft/core/error.h"
#include "qft/core/program.h"
#include "qft/core/units.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sched.h>
#include <set>
#include <unistd.h>

#include "memory_limits.h"
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

namespace qft::device {

namespace {

// Returns the first CPU of `cpu`'s core: one number per physical core.
int core_of(int cpu) {
  std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu));
  int first = cpu;
  file >> first;
  return first;
}

/// Returns the smallest CPU quota of this process's control groups; 0: no quota.
double cgroup_quota() {
  double least = 0;
  for (const Cgroup& group : cgroups("cpu")) {
    std::string quota = "max";
    double period = 0;
    if (group.unified) {
      std::ifstream(group.dir / "cpu.max") >> quota >> period;
    } else {
      std::ifstream(group.dir / "cpu.cfs_quota_us") >> quota;
      std::ifstream(group.dir / "cpu.cfs_period_us") >> period;
    }
    const double cpus = period > 0 ? std::atof(quota.c_str()) / period : 0;  // "max" and -1 mean no quota
    if (cpus > 0) least = least > 0 ? std::min(least, cpus) : cpus;
  }
  return least;
}

int positive_number(const char* text) {
  const int value = text == nullptr ? 0 : std::atoi(text);
  return std::max(value, 0);
}

// Returns the CPUs that process `pid` may run on; 0: this process.
std::vector<int> cpus_of(int pid) {
  std::vector<int> cpus;
  // The mask must cover all CPUs that the kernel knows: grow it until it does.
  for (int capacity = 1024; capacity <= 1 << 20; capacity *= 2) {
    cpu_set_t* mask = CPU_ALLOC(static_cast<std::size_t>(capacity));
    const auto bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(capacity));
    const bool known = sched_getaffinity(pid, bytes, mask) == 0;
    for (int cpu = 0; known && cpu < capacity; ++cpu) {
      if (CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes, mask)) cpus.push_back(cpu);
    }
    CPU_FREE(mask);
    if (known) break;
  }
  return cpus;
}

// Returns the job's CPUs. mpirun binds its ranks but is not bound itself: its mask is the batch system's, the container's or
// taskset's. If neither gives a number, the process's own CPUs count as the job's.
int job_cpus(int own) {
  const int allocated = positive_number(std::getenv("SLURM_CPUS_ON_NODE"));
  const auto launcher = launcher_process();
  if (!launcher) return std::max(own, allocated);
  const int launched = static_cast<int>(cpus_of(*launcher).size());
  return std::max(own, allocated > 0 ? std::min(allocated, launched) : launched);
}

}  // namespace

CpuShare cpu_share() {
  CpuShare share;
  share.cpus = cpus_of(0);
  share.job_cpus = job_cpus(static_cast<int>(share.cpus.size()));
  std::set<int> cores;
  for (const int cpu : share.cpus) cores.insert(core_of(cpu));
  share.cores = std::max<int>(1, static_cast<int>(cores.size()));
  share.quota = cgroup_quota();
  return share;
}

ThreadPlan plan_threads(const CpuShare& share, int sharers, int local_size) {
  ThreadPlan plan;
  int cores = share.cores;
  std::string source = count_noun(cores, "core");
  // The quota applies to the whole job on this node; the mask may be this rank's alone.
  const double quota_of_sharers = share.quota * sharers / std::max(local_size, 1);
  if (share.quota > 0 && quota_of_sharers < cores) {
    cores = std::max(1, static_cast<int>(std::floor(quota_of_sharers)));
    source = fmt::format("{} of the cgroup's CPU quota {:.1f}", count_noun(cores, "core"), share.quota);
  }
  const int fair = std::max(1, cores / std::max(sharers, 1));
  const int wished = positive_number(std::getenv("OMP_NUM_THREADS"));
  plan.threads = wished > 0 ? wished : fair;
  plan.reason = wished > 0    ? fmt::format("OMP_NUM_THREADS={}", wished)
                : sharers > 1 ? fmt::format("{} / {} ranks", source, sharers)
                              : source;
  if (sharers > cores) {
    plan.advice = fmt::format("{} ranks share {}: start fewer ranks per node", sharers, count_noun(cores, "core"));
  } else if (wished > fair) {
    plan.advice = fmt::format("{} threads in each of {} on {}: set OMP_NUM_THREADS={} or leave it unset", wished,
                              count_noun(sharers, "rank"), count_noun(cores, "core"), fair);
  } else if (sharers == 1 && local_size * static_cast<int>(share.cpus.size()) * 2 <= share.job_cpus && share.quota == 0) {
    plan.advice = fmt::format(
        "{} bound to {} each leave{} half or more of the job's {} CPUs on the node idle: mpirun "
        "--map-by socket:PE=N --bind-to core, or --bind-to none",
        count_noun(local_size, "rank"), count_noun(share.cores, "core"), local_size == 1 ? "s" : "", share.job_cpus);
  }
  return plan;
}

void use_threads(int threads) {
  QFT_ASSERT(threads > 0, "{} compute threads", threads);
  at::set_num_threads(threads);
}

std::string format_cpu_list(const std::vector<int>& cpus) {
  std::string text;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += last == i ? std::to_string(cpus[i]) : fmt::format("{}-{}", cpus[i], cpus[last]);
    i = last + 1;
  }
  return text;
}

void set_matmul_precision(std::string_view word) {
  if (word != "highest" && word != "high" && word != "medium") {
    fail_config("matmul precision '{}' is not known: use highest, high or medium", word);
  }
  at::globalContext().setFloat32MatmulPrecision(std::string(word));
}

}  // namespace qft::device
