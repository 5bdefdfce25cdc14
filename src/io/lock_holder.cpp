#include "lock_holder.h"

#include "qft/core/activity.h"
#include "qft/core/clock.h"
#include "qft/core/json.h"
#include "qft/core/random_id.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <ctime>
#include <fcntl.h>
#include <fstream>
#include <sstream>
#include <unistd.h>

#include <fmt/format.h>

namespace qft::io {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string first_line(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

/// State and start time of a process from /proc/PID/stat, in which the second field may hold any text.
struct ProcessState {
  char state = '?';
  std::int64_t started = 0;
};
std::optional<ProcessState> process_state(std::int64_t pid) {
  const std::string line = first_line(fmt::format("/proc/{}/stat", pid));
  const auto name_end = line.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(name_end + 1));
  ProcessState process;
  std::string skipped;
  fields >> process.state;
  for (int i = 0; i < 18; ++i) fields >> skipped;
  fields >> process.started;
  return fields ? std::optional(process) : std::nullopt;
}

bool is_alive(std::int64_t pid, std::int64_t started) {
  if (::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH) return false;
  const auto process = process_state(pid);
  if (!process) return true;  // hidden: belongs to another user
  return process->started == started && process->state != 'Z' && process->state != 'X';
}

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string machine() {
  std::error_code code;
  const fs::path space = fs::read_symlink("/proc/self/ns/pid", code);
  const std::string boot = first_line("/proc/sys/kernel/random/boot_id");
  return boot.empty() || code ? "" : boot + " " + space.string();
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

/// Calls field(key, member) for each field of a lock file.
template <class Holder, class Field>
void for_each_field(Holder& h, const Field& field) {
  field("program", h.program), field("host", h.host), field("machine", h.machine), field("pid", h.pid);
  field("pid_started", h.pid_started), field("job", h.job), field("restarts", h.restarts);
  field("since", h.since), field("run", h.run), field("token", h.token), field("beat", h.beat);
}

}  // namespace

LockContext this_process(std::string program, std::string job, std::int64_t restarts) {
  LockContext context;
  LockHolder& self = context.self;
  self.program = std::move(program);
  self.host = host_name();
  self.machine = machine();
  self.pid = ::getpid();
  if (const auto process = process_state(self.pid)) self.pid_started = process->started;
  self.job = std::move(job);
  self.restarts = restarts;
  self.since = utc_now();
  self.token = random_hex();
  context.now = steady_seconds;
  context.sleep = [](double seconds) {
    activity::tick();
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  };
  context.alive = is_alive;
  return context;
}

std::string lock_text(const LockHolder& holder) {
  json document;
  for_each_field(holder, [&](const char* key, const auto& value) { document[key] = value; });
  std::string text = document.dump(-1, ' ', false, json::error_handler_t::replace);
  text.resize(std::max(text.size(), kLockBytes - 1), ' ');
  return text + "\n";
}

LockHolder parse_lock(const std::string& text) {
  LockHolder holder;
  try {
    const json document = parse_json(text, "the lock");
    for_each_field(holder, [&](const char* key, auto& value) { document.at(key).get_to(value); });
    return holder;
  } catch (const std::exception&) {
    return {};
  }
}

std::string describe(const LockHolder& h) {
  if (h.token.empty()) return "an unknown process";
  std::string text = fmt::format("{} on {} (pid {}", h.program, h.host, h.pid);
  if (!h.job.empty()) text += ", job " + h.job;
  text += ", since " + h.since;
  if (!h.run.empty()) text += ", run " + h.run.substr(0, 8);
  return text + ")";
}

std::optional<std::string> read_lock(const fs::path& path) {
  // Opening the file makes NFS ask its server again.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return std::nullopt;
  std::string text(2 * kLockBytes, '\0');
  const ssize_t got = ::pread(fd, text.data(), text.size(), 0);
  ::close(fd);
  if (got < 0) return std::nullopt;
  text.resize(static_cast<std::size_t>(got));
  return text;
}

}  // namespace qft::io
