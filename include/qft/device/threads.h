// CPU cores, threads and arithmetic modes of the host.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace qft::device {

/// The CPUs that this process may use.
struct CpuShare {
  std::vector<int> cpus;  ///< logical CPUs of the affinity mask, ascending
  int cores = 0;          ///< physical cores among them
  int job_cpus = 0;       ///< logical CPUs of the node that the job may use, whether or not this process is bound to them
  double quota = 0;       ///< CPUs that the cgroup grants; 0: no limit
};
CpuShare cpu_share();

/// The number of compute threads to use, and the reason.
struct ThreadPlan {
  int threads = 1;
  std::string reason;  ///< "16 cores / 4 ranks", "OMP_NUM_THREADS=8"
  std::string advice;  ///< what is wrong with the binding, and the flag that fixes it; empty: nothing
};

/// Plans the threads. `sharers`: ranks of this node that run on the same cores (Session::core_sharers()). OMP_NUM_THREADS takes
/// precedence.
ThreadPlan plan_threads(const CpuShare& share, int sharers, int local_size);

/// Sets ATen's intra-operator threads for this process.
void use_threads(int threads);

/// Returns "0-3,8" for {0,1,2,3,8}.
std::string format_cpu_list(const std::vector<int>& cpus);

/// Sets the precision of fp32 matmuls: "highest" (fp32), "high" (TF32), "medium" (bf16 products with fp32 sums, if that is faster
/// on the CPU or GPU). Throws ConfigError for another word.
void set_matmul_precision(std::string_view word);

}  // namespace qft::device
