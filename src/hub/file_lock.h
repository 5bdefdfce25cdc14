// One process brings a file: the lock that the hubs' own clients take too.
#pragma once

#include <filesystem>
#include <functional>

namespace qft::hub {

class FileLock {
 public:
  /// Waits while another process holds it, as long as `go_on` says so; then throws Error. `waits` is called once.
  FileLock(const std::filesystem::path& path, const std::function<void()>& waits, const std::function<bool()>& go_on);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  /// False where the file system has no locks: then two processes may do the same, each in files of its own.
  bool held() const { return held_; }
  /// Removes a lock's file where nobody holds it.
  static void remove_free(const std::filesystem::path& path);

 private:
  int fd_ = -1;
  bool held_ = false;
};

}  // namespace qft::hub
