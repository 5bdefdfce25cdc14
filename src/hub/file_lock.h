// Lets one process download a file: the lock that the hubs' own clients also take.
#pragma once

#include <filesystem>
#include <functional>

namespace qft::hub {

class FileLock {
 public:
  /// Waits for another process that holds the lock while `keep_going` returns true; then throws Error. Calls `waits` once before
  /// waiting.
  FileLock(const std::filesystem::path& path, const std::function<void()>& waits, const std::function<bool()>& keep_going);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  /// False if the file system has no locks: then two processes may do the same work, each in separate files.
  bool held() const { return held_; }
  /// Removes the lock's file if nobody holds it.
  static void remove_free(const std::filesystem::path& path);

 private:
  int fd_ = -1;
  bool held_ = false;
};

}  // namespace qft::hub
