// Runs whole jobs of a probe; the test's CMake file names the probe.
#pragma once

#include <array>
#include <chrono>
#include <cstdio>
#include <future>
#include <string>
#include <sys/wait.h>
#include <vector>

#include <gtest/gtest.h>

namespace qft::job::test {

struct Ending {
  int code = -1;
  std::string output;
  double seconds = 0;
};

/// Runs the probe with argument `way` on `ranks` ranks (0: without mpirun), with `settings` in its environment ("A=1 B=2").
inline Ending run(const std::string& way, int ranks, const std::string& settings = "") {
  const auto start = std::chrono::steady_clock::now();
  const std::string job = std::string(QFT_TEST_PROBE) + " '" + way + "' 2>&1";
  // Open MPI would wait a second between asking the ranks of a failed job to end and killing them.
  const std::string command = settings + " OMPI_MCA_odls_base_sigkill_timeout=0 timeout 60 " +
                              (ranks == 0 ? job : std::string(QFT_TEST_MPIRUN) + " -np " + std::to_string(ranks) + " " + job);
  Ending ending;
  FILE* pipe = popen(command.c_str(), "r");
  std::array<char, 4096> buffer{};
  while (const auto n = std::fread(buffer.data(), 1, buffer.size(), pipe)) ending.output.append(buffer.data(), n);
  const int status = pclose(pipe);
  ending.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  ending.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return ending;
}

/// Runs several ways at once, because they mostly wait. Each has its own folder for Open MPI (4.1): a job that ends removes a
/// folder that another job is about to use.
inline std::vector<Ending> run_together(const std::vector<std::string>& ways, int ranks) {
  std::vector<std::future<Ending>> jobs;
  for (const std::string& way : ways) {
    const std::string folder =
        "OMPI_MCA_orte_tmpdir_base=${OMPI_MCA_orte_tmpdir_base:-/tmp/qft-$$}/" + std::to_string(jobs.size());
    jobs.push_back(std::async(std::launch::async, [way, ranks, folder] { return run(way, ranks, folder); }));
  }
  std::vector<Ending> endings;
  for (auto& job : jobs) endings.push_back(job.get());
  return endings;
}

inline int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

/// Expects that the watchdog ended the job in time and named the culprit.
inline void expect_watched(const Ending& ending, const std::string& reason, double grace = 2) {
  EXPECT_EQ(ending.code, 1) << ending.output;
  EXPECT_EQ(count(ending.output, "error: watchdog: "), 1) << ending.output;
  EXPECT_NE(ending.output.find(reason), std::string::npos) << ending.output;
  EXPECT_LT(ending.seconds, grace + 5 + 8) << ending.output;  // timeout, promised delay, start and end of a job
}

}  // namespace qft::job::test
