// One writer to a directory, also on file systems that nodes share: a file that its holder keeps changing. No flock, which
// many of them lack or keep to one node, and no trust in other machines' clocks.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace qft::io {

inline constexpr const char* kLockFile = ".qft-lock";
/// How names begin that processes use while they ask for the lock.
inline constexpr const char* kLockPrefix = ".qft-lock-";

/// The holder writes a new number this often; where the number stands still for this long, the holder is dead.
inline constexpr double kBeatSeconds = 15, kDeadSeconds = 60;
/// A holder on this machine that is alive gets this long to end: what was killed may take a moment.
inline constexpr double kGraceSeconds = 3;

/// Who holds a lock, as its file says.
struct LockHolder {
  std::string program;  ///< "qft train"
  std::string host;     ///< name, for people
  std::string machine;  ///< boot id and pid namespace: where these are equal, pids mean the same
  std::int64_t pid = 0;
  std::int64_t pid_started = 0;  ///< clock ticks since boot: tells a process from a later one with its pid
  std::string job;               ///< of the batch system; empty outside of one
  std::int64_t restarts = 0;     ///< how often the batch system has put the job back into the queue; -1: not known
  std::string since;             ///< UTC
  std::string run;               ///< the run's id, once it is known
  std::string token;             ///< random: one taking of the lock
  std::int64_t beat = 0;         ///< the number that moves
};

/// The process that asks, and what it asks its machine; tests give their own.
struct LockContext {
  LockHolder self;
  std::function<double()> now;                                        ///< seconds on a steady clock
  std::function<void(double)> sleep;                                  ///< seconds
  std::function<bool(std::int64_t pid, std::int64_t started)> alive;  ///< of a process of this machine
  bool beats = true;                                                  ///< a thread moves the number
};
/// This process, on this machine.
LockContext this_process(std::string program, std::string job = {}, std::int64_t restarts = 0);

/// The lock on a directory, from construction to destruction. Not collective: one process of a job holds it. The lock of a dead
/// holder is taken over: at once if it was a process of this machine that is gone, or this batch job before it was put back
/// into the queue; else once its number has not changed for kDeadSeconds by this machine's clock.
class DirLock {
 public:
  /// Takes the lock of `dir`, which exists. Throws Error naming the holder where that is alive. Waits, and says so, where only
  /// time can tell.
  DirLock(std::filesystem::path dir, LockContext context);
  /// Gives it back, unless it was lost.
  ~DirLock();
  DirLock(const DirLock&) = delete;
  DirLock& operator=(const DirLock&) = delete;

  /// Throws Error naming the new holder if another process has taken the lock over, because this one was silent for too long:
  /// then this one must not write any more. Reads the file. Any thread.
  void require_held();
  /// Notes the run's id for those who are refused.
  void set_run(const std::string& id);
  /// Moves the number. The thread calls it.
  void beat();

 private:
  enum class Verdict { dead, alive, unknown };
  struct Seen;
  void acquire();
  Verdict judge(const LockHolder& holder, const std::string& text, Seen& seen) const;
  [[noreturn]] void refuse(const LockHolder& holder) const;
  bool take_over(const std::string& text);
  bool make(const std::filesystem::path& name);
  void write();
  void look();
  std::filesystem::path mark_after(const std::string& text) const;
  std::optional<std::string> last_in_line() const;
  void remove_leftovers() const;

  std::filesystem::path dir_, path_, own_;  ///< own_: this process' file before it has the lock's name
  LockContext context_;
  LockHolder self_;
  int fd_ = -1;
  std::string lost_;  ///< who holds it now
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace qft::io
