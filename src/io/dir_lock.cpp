#include "qft/io/dir_lock.h"

#include "qft/core/activity.h"
#include "qft/core/error.h"
#include "qft/core/hash.h"
#include "qft/core/log.h"
#include "qft/core/thread.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "lock_holder.h"

namespace qft::io {

namespace fs = std::filesystem;

namespace {

constexpr double kPollSeconds = 0.5;
const std::string kMarkPrefix = std::string(kLockPrefix) + "after-";

/// Returns a text that identifies one acquisition of a lock, whatever its number.
std::string key_of(const std::string& text) {
  const LockHolder holder = parse_lock(text);
  return holder.token.empty() ? hash_hex(text) : holder.token;
}

/// True if link() created the name although it reported failure: NFS may answer a repeated request.
bool has_two_names(const fs::path& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 && info.st_nlink == 2;
}

}  // namespace

/// The last observation of a holder, and its time.
struct DirLock::Observation {
  std::string key, text;
  double since = 0;
  bool warned = false;
};

DirLock::DirLock(fs::path dir, LockContext context)
    : dir_(std::move(dir)), path_(dir_ / kLockFile), context_(std::move(context)), self_(context_.self) {
  own_ = dir_ / (kLockPrefix + self_.token);
  fd_ = ::open(own_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  require(fd_ >= 0, "cannot create '{}': {}", own_.string(), std::strerror(errno));
  try {
    write();
    acquire();
  } catch (...) {
    ::unlink(own_.c_str());
    ::close(fd_);
    throw;
  }
  // Keep the file open under its final name: for the other name NFS would leave a .nfs... file while it is open.
  if (const int fd = ::open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW); fd >= 0) {
    struct stat mine{}, there{};
    const bool same =
        ::fstat(fd_, &mine) == 0 && ::fstat(fd, &there) == 0 && mine.st_ino == there.st_ino && mine.st_dev == there.st_dev;
    ::close(same ? std::exchange(fd_, fd) : fd);
  }
  ::unlink(own_.c_str());
  remove_leftovers();
  if (!context_.beats) return;
  thread_ = start_thread([this] {
    std::unique_lock guard(mutex_);
    while (!wake_.wait_for(guard, std::chrono::duration<double>(kBeatSeconds), [this] { return stopping_; })) {
      guard.unlock();
      beat();
      guard.lock();
    }
  });
}

DirLock::~DirLock() {
  {
    const std::lock_guard guard(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  ::close(fd_);
  if (const auto text = read_lock(path_); text && parse_lock(*text).token == self_.token) ::unlink(path_.c_str());
}

void DirLock::acquire() {
  Observation observed;
  while (!try_create(path_)) {
    const auto text = newest_claim();
    if (!text) continue;  // released meanwhile
    const LockHolder holder = parse_lock(*text);
    const Verdict verdict = judge(holder, *text, observed);
    if (verdict == Verdict::alive) refuse(holder);
    if (verdict == Verdict::dead) {
      if (take_over(*text)) {
        log::warn("'{}' was in use by {}, which is gone: this run takes it over", dir_.string(), describe(holder));
        return;
      }
    } else if (!observed.warned && holder.machine != self_.machine) {
      log::warn("'{}' is in use by {}: waiting {:.0f} s for a sign of life from it", dir_.string(), describe(holder),
                kDeadSeconds);
      observed.warned = true;
    }
    context_.sleep(kPollSeconds);
  }
}

DirLock::Verdict DirLock::judge(const LockHolder& holder, const std::string& text, Observation& observed) const {
  const std::string key = key_of(text);
  const double now = context_.now();
  if (observed.key != key) observed = {key, text, now, observed.warned};
  if (!holder.machine.empty() && holder.machine == self_.machine) {
    if (!context_.alive(holder.pid, holder.pid_started)) return Verdict::dead;
    return now - observed.since < kGraceSeconds ? Verdict::unknown : Verdict::alive;
  }
  if (!holder.job.empty() && holder.job == self_.job && holder.restarts >= 0 && holder.restarts < self_.restarts)
    return Verdict::dead;
  if (text != observed.text) return Verdict::alive;
  return now - observed.since < kDeadSeconds ? Verdict::unknown : Verdict::dead;
}

void DirLock::refuse(const LockHolder& holder) const {
  fail(
      "'{}' is in use by {}: two runs would destroy each other's files; wait for that one, stop it, or choose another output_dir "
      "(if that process is certainly gone, remove '{}')",
      dir_.string(), describe(holder), path_.string());
}

/// Exactly one process takes over from a holder: the one that creates the mark file for this holder. If that process dies
/// meanwhile, another takes over from it.
bool DirLock::take_over(const std::string& text) {
  const fs::path mark = takeover_mark(text);
  if (!try_create(mark)) return false;
  const auto last = newest_claim();  // another process may have taken over before the mark existed
  const bool ours = last && parse_lock(*last).token == self_.token;
  if (ours)
    require(::rename(own_.c_str(), path_.c_str()) == 0, "cannot rename '{}' to '{}': {}", own_.string(), path_.string(),
            std::strerror(errno));
  ::unlink(mark.c_str());
  return ours;
}

/// Gives this process' file the name `name`; returns false if the name exists.
bool DirLock::try_create(const fs::path& name) {
  if (::link(own_.c_str(), name.c_str()) == 0) return true;
  const int reason = errno;
  if (reason == EEXIST) return has_two_names(own_) && read_lock(name) == lock_text(self_);
  const bool without_links = reason == EPERM || reason == EOPNOTSUPP || reason == ENOSYS || reason == EMLINK || reason == EINVAL;
  require(without_links, "cannot create '{}': {}", name.string(), std::strerror(reason));
  const int fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0 && errno == EEXIST) return false;
  require(fd >= 0, "cannot create '{}': {}", name.string(), std::strerror(errno));
  const std::string text = lock_text(self_);
  const bool written = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  ::close(fd);
  // The lock must be the file that is open here, because beat() writes to it.
  const bool renamed = name != path_ || ::rename(own_.c_str(), name.c_str()) == 0;
  require(written && renamed, "cannot write '{}': {}", name.string(), std::strerror(errno));
  return true;
}

fs::path DirLock::takeover_mark(const std::string& text) const {
  return dir_ / (kMarkPrefix + key_of(text));
}

/// Returns the text of the lock file, or of the process that is taking it over; nullopt if there is no lock.
std::optional<std::string> DirLock::newest_claim() const {
  auto text = read_lock(path_);
  while (text) {
    auto next = read_lock(takeover_mark(*text));
    if (!next || *next == *text) break;
    text = std::move(next);
  }
  return text;
}

/// Removes files of processes that died while they asked for the lock.
void DirLock::remove_leftovers() const {
  std::error_code code;
  std::vector<fs::path> names;
  for (fs::directory_iterator it(dir_, code), end; !code && it != end; it.increment(code)) names.push_back(it->path());
  for (const fs::path& path : names) {
    const std::string name = path.filename().string();
    if (!name.starts_with(kLockPrefix) || path == own_) continue;
    const auto text = read_lock(path);
    if (!text) continue;
    const LockHolder who = parse_lock(*text);
    const bool gone = !who.machine.empty() && who.machine == self_.machine && !context_.alive(who.pid, who.pid_started);
    // Marks for earlier holders have no meaning any more.
    const bool old_mark = name.starts_with(kMarkPrefix) && name != kMarkPrefix + self_.token;
    if (gone || old_mark) ::unlink(path.c_str());
  }
}

void DirLock::set_run(const std::string& id) {
  {
    const std::lock_guard guard(mutex_);
    self_.run = id;
  }
  beat();
}

/// Writes in place: the name may now belong to another holder's file, which this process must not touch.
void DirLock::write() {
  const std::string text = lock_text(self_);
  const bool written = ::pwrite(fd_, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()) && ::fsync(fd_) == 0;
  require(written, "cannot write the lock of '{}': {}", dir_.string(), std::strerror(errno));
}

void DirLock::beat() {
  const std::lock_guard guard(mutex_);
  ++self_.beat;
  try {
    write();
  } catch (const Error& e) {
    log::warn("{}: another run may believe that this one is dead", e.what());
  }
  const bool before = lost_to_.empty();
  check_owner();
  if (before && !lost_to_.empty()) activity::request_end("the lock of '" + dir_.string() + "' was taken over by " + lost_to_);
}

/// Checks whether this process still holds the lock. Creates the lock file again if someone removed it by hand.
void DirLock::check_owner() {
  if (!lost_to_.empty()) return;
  const auto text = read_lock(path_);
  if (text && parse_lock(*text).token == self_.token) return;
  if (text) {
    lost_to_ = describe(parse_lock(*text));
    return;
  }
  std::error_code code;
  if (fs::symlink_status(path_, code).type() != fs::file_type::not_found) return;  // file system trouble: no reason to end
  const int fd = ::open(own_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return;
  ::close(std::exchange(fd_, fd));
  try {
    write();
    if (try_create(path_)) log::warn("'{}' was removed while this run uses it: created again", path_.string());
  } catch (const Error& e) {
    log::warn("{}", e.what());
  }
  ::unlink(own_.c_str());
}

void DirLock::require_held() {
  const std::lock_guard guard(mutex_);
  check_owner();
  require(lost_to_.empty(),
          "'{}' was taken over by {} after this run had shown no sign of life for {:.0f} s: this run ends and writes "
          "nothing more",
          dir_.string(), lost_to_, kDeadSeconds);
}

}  // namespace qft::io
