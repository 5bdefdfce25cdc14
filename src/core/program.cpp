#include "qft/core/program.h"

#include "qft/core/error.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <unistd.h>

#include <fmt/format.h>

namespace qft {
namespace {

// As the kernel shortens process names, to 15 characters.
constexpr std::array<std::string_view, 9> kLaunchers = {"mpirun", "mpiexec", "orterun",       "orted",          "prterun",
                                                        "prted",  "prte",    "mpiexec.hydra", "hydra_pmi_proxy"};

struct Process {
  std::string name;
  int parent = 0;
  int group = 0;
};

// Variables of Open MPI, PMI (Hydra, Intel MPI, Cray), SLURM, MVAPICH, Flux, LSF's jsrun and torchrun.
constexpr const char* kCounts[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE",      "MPI_LOCALNRANKS",    "MV2_COMM_WORLD_SIZE",
                                   "SLURM_STEP_NUM_TASKS", "FLUX_JOB_SIZE", "JSM_NAMESPACE_SIZE", "WORLD_SIZE"};
constexpr const char* kRanks[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK",    "PMI_RANK",           "MV2_COMM_WORLD_RANK",
                                  "FLUX_TASK_RANK",       "SLURM_PROCID", "JSM_NAMESPACE_RANK", "RANK"};

int number_in(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : std::atoi(text);
}

/// Parses /proc/PID/stat: "PID (name) state parent group ...".
std::optional<Process> process(int pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto begin = text.find('('), end = text.rfind(')');
  if (begin == std::string::npos || end == std::string::npos) return std::nullopt;
  Process p;
  p.name = text.substr(begin + 1, end - begin - 1);
  char state = ' ';
  if (!(std::istringstream(text.substr(end + 1)) >> state >> p.parent >> p.group)) return std::nullopt;
  return p;
}

/// True if `path` is a terminal and its foreground process group is `group` or unknown.
bool is_shown_on(const std::string& path, int group) {
  const int terminal = open(path.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC);
  if (terminal < 0) return false;
  const bool is_terminal = isatty(terminal) == 1;
  const int front = is_terminal ? static_cast<int>(tcgetpgrp(terminal)) : -1;
  close(terminal);
  return is_terminal && (front < 0 || front == group);
}

}  // namespace

void ignore_write_signals() {
  for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_IGN);
}

int run_program(const std::function<int()>& body) {
  const auto failed = [](const std::exception& error, int code) {
    std::fputs(fmt::format("error: {}\n", error.what()).c_str(), stderr);
    return code;
  };
  try {
    return body();
  } catch (const Error& error) {
    return failed(error, error.exit_code());
  } catch (const std::exception& error) {
    return failed(error, kExitFailed);
  }
}

void quick_exit_program(int code) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  std::exit(code);
#else
  std::cout.flush();
  std::fflush(nullptr);
  std::quick_exit(code);
#endif
}

std::filesystem::path program_folder() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
}

std::vector<std::filesystem::path> config_folders(const char* variable, std::string_view kind) {
  std::vector<std::filesystem::path> folders;
  if (const char* own = std::getenv(variable); own != nullptr && *own != '\0') folders.emplace_back(own);
  if (const auto program = program_folder(); !program.empty())
    folders.push_back(program.parent_path() / "share/qft/configs" / kind);
  return folders;
}

std::optional<int> launcher_process() {
  for (int pid = getppid(); pid > 1;) {
    const auto p = process(pid);
    if (!p) return std::nullopt;
    if (std::ranges::find(kLaunchers, p->name.substr(0, 15)) != kLaunchers.end()) return pid;
    pid = p->parent;
  }
  return std::nullopt;
}

std::optional<LaunchedProcesses> launched_processes() {
  for (const char* variable : kCounts)
    if (const int count = number_in(variable); count > 1) return LaunchedProcesses{variable, count};
  return std::nullopt;
}

bool is_first_process() {
  return std::ranges::none_of(kRanks, [](const char* variable) { return number_in(variable) > 0; });
}

std::string progress_terminal() {
  if (isatty(STDERR_FILENO) == 1) return "/dev/stderr";
  const auto pid = launcher_process();
  if (!pid) return {};
  const auto p = process(*pid);
  const std::string path = fmt::format("/proc/{}/fd/2", *pid);
  return p && is_shown_on(path, p->group) ? path : std::string();
}

}  // namespace qft
