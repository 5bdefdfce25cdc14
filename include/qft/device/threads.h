// Cores, threads and arithmetic modes of the host.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace qft::device {

/// What this process may run on.
struct CpuShare {
  std::vector<int> cpus;  ///< logical CPUs of the affinity mask, ascending
  int cores = 0;          ///< physical cores among them
  int job_cpus = 0;       ///< logical CPUs of the node that the job may use, bound to this process or not
  double quota = 0;       ///< CPUs that the cgroup grants; 0: no limit
};
CpuShare cpu_share();

/// How many compute threads to use, and why.
struct ThreadPlan {
  int threads = 1;
  std::string reason;  ///< "16 cores / 4 ranks", "OMP_NUM_THREADS=8"
  std::string advice;  ///< empty, or what is wrong with the binding and the flag that mends it
};

/// `sharers`: ranks of this node that run on the same cores (Session::core_sharers()). OMP_NUM_THREADS wins if set.
ThreadPlan plan_threads(const CpuShare& share, int sharers, int local_size);

/// Sets ATen's intra-operator threads for this process.
void use_threads(int threads);

/// "0-3,8" of {0,1,2,3,8}.
std::string format_cpu_list(const std::vector<int>& cpus);

/// How fp32 matmuls are done: "highest" (fp32), "high" (TF32), "medium" (bf16 inside, fp32 sums, where the
/// CPU or GPU is faster so). Throws ConfigError for another word.
void set_matmul_precision(std::string_view word);

}  // namespace qft::device
