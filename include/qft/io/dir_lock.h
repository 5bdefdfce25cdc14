// A lock that lets one process write to a directory, also on a shared file system: a file that its holder keeps changing. It does
// not use flock, which many shared file systems lack or keep to one node, and does not trust other machines' clocks.
#pragma once

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
/// Prefix of the file names that processes use while they ask for the lock.
inline constexpr const char* kLockPrefix = ".qft-lock-";

/// The holder writes a new number every kBeatSeconds. If the number does not change for kDeadSeconds, the holder is dead.
inline constexpr double kBeatSeconds = 15, kDeadSeconds = 60;
/// A live holder on this machine gets this long to end: a killed process may take a moment.
inline constexpr double kGraceSeconds = 3;

/// The holder of a lock, as its file describes it.
struct LockHolder {
  std::string program;  ///< "qft train"
  std::string host;     ///< name, for people
  std::string machine;  ///< boot id and pid namespace: pids can be compared if these are equal
  std::int64_t pid = 0;
  std::int64_t pid_started = 0;  ///< clock ticks since boot: tells a process from a later one with the same pid
  std::string job;               ///< the batch system's job id; empty outside a job
  std::int64_t restarts = 0;     ///< number of times the batch system requeued the job; -1: unknown
  std::string since;             ///< UTC
  std::string run;               ///< the run's id, once known
  std::string token;             ///< random; identifies one acquisition of the lock
  std::int64_t beat = 0;         ///< the number that changes
};

/// The process that asks for the lock, and its view of the machine. Tests provide their own.
struct LockContext {
  LockHolder self;
  std::function<double()> now;                                        ///< seconds on a steady clock
  std::function<void(double)> sleep;                                  ///< seconds
  std::function<bool(std::int64_t pid, std::int64_t started)> alive;  ///< for processes of this machine
  bool beats = true;                                                  ///< whether a thread updates the number
};
/// Returns the context of this process on this machine.
LockContext this_process(std::string program, std::string job = {}, std::int64_t restarts = 0);

/// Holds the lock on a directory from construction to destruction. Not collective: one process of a job holds it. A dead holder's
/// lock is taken over: at once if the holder was a process of this machine that is gone, or this batch job before its requeue;
/// otherwise after its number has not changed for kDeadSeconds by this machine's clock.
class DirLock {
 public:
  /// Takes the lock of `dir`, which must exist. Throws Error with the holder if the holder is alive. If only time can tell,
  /// logs a warning and waits.
  DirLock(std::filesystem::path dir, LockContext context);
  /// Releases the lock, unless it was lost.
  ~DirLock();
  DirLock(const DirLock&) = delete;
  DirLock& operator=(const DirLock&) = delete;

  /// Throws Error with the new holder if another process has taken the lock over because this one was silent for too long. This
  /// process must then write nothing more. Reads the lock file. Safe on any thread.
  void require_held();
  /// Records the run's id in the lock file, for the message to other processes.
  void set_run(const std::string& id);
  /// Updates the number; the lock's thread calls this.
  void beat();

 private:
  enum class Verdict { dead, alive, unknown };
  struct Observation;
  void acquire();
  Verdict judge(const LockHolder& holder, const std::string& text, Observation& observed) const;
  [[noreturn]] void refuse(const LockHolder& holder) const;
  bool take_over(const std::string& text);
  bool try_create(const std::filesystem::path& name);
  void write();
  void check_owner();
  std::filesystem::path takeover_mark(const std::string& text) const;
  std::optional<std::string> newest_claim() const;
  void remove_leftovers() const;

  std::filesystem::path dir_, path_, own_;  ///< own_: this process' file before it gets the lock's name
  LockContext context_;
  LockHolder self_;
  int fd_ = -1;
  std::string lost_to_;  ///< the new holder, once the lock is lost
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace qft::io
