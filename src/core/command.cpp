#include "qft/core/command.h"

#include "qft/core/error.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace qft {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMaxOutputBytes = std::size_t{1} << 20;

std::chrono::milliseconds until(Clock::time_point when) {
  return std::max(std::chrono::milliseconds(0), std::chrono::ceil<std::chrono::milliseconds>(when - Clock::now()));
}

/// Starts the program in its own process group, with default signal handling. Returns errno's value.
int start(const std::vector<std::string>& command, int output, pid_t& pid) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const int status = posix_spawnp(&pid, argv[0], &files, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return status;
}

/// Reads until the end of the output. Returns false if it does not end by `deadline` or exceeds kMaxOutputBytes.
bool read_all(int input, Clock::time_point deadline, std::string& text) {
  std::array<char, 4096> piece;
  while (text.size() < kMaxOutputBytes) {
    pollfd ready{input, POLLIN, 0};
    const int found = poll(&ready, 1, static_cast<int>(until(deadline).count()));
    if (found < 0 && errno == EINTR) continue;
    if (found <= 0) return false;
    const ssize_t n = read(input, piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n == 0;
    text.append(piece.data(), static_cast<std::size_t>(n));
  }
  return false;
}

/// Returns the program's wait status, or nullopt if it has not ended by `deadline`.
std::optional<int> wait_for_exit(pid_t pid, Clock::time_point deadline) {
  while (true) {
    int status = 0;
    if (waitpid(pid, &status, WNOHANG) == pid) return status;
    if (Clock::now() >= deadline) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace

CommandOutput run_command(const std::vector<std::string>& command, std::chrono::milliseconds timeout) {
  QFT_ASSERT(!command.empty(), "no program to ask");
  const auto deadline = Clock::now() + timeout;
  std::array<int, 2> pipe_ends{};
  if (pipe2(pipe_ends.data(), O_CLOEXEC) != 0) return {"", fmt::format("cannot create a pipe: {}", std::strerror(errno))};
  pid_t pid = 0;
  const int failed = start(command, pipe_ends[1], pid);
  close(pipe_ends[1]);
  CommandOutput answer;
  if (failed != 0) {
    answer.error = fmt::format("{}: {}", command[0], std::strerror(failed));
  } else {
    const bool whole = read_all(pipe_ends[0], deadline, answer.text);
    const auto status = whole ? wait_for_exit(pid, deadline) : std::nullopt;
    if (!status) {
      kill(-pid, SIGKILL);
      wait_for_exit(pid, Clock::now() + std::chrono::seconds(1));
      answer.error = fmt::format("{} did not answer in {:.0f} s", command[0], std::chrono::duration<double>(timeout).count());
    } else if (*status != 0) {
      answer.error = WIFEXITED(*status) ? fmt::format("{} exited with code {}", command[0], WEXITSTATUS(*status))
                                        : fmt::format("{} was killed by signal {}", command[0], WTERMSIG(*status));
    }
  }
  close(pipe_ends[0]);
  return answer;
}

}  // namespace qft
