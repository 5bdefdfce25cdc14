#include "file_lock.h"

#include "qft/core/activity.h"
#include "qft/core/error.h"
#include "qft/io/identity.h"
#include "qft/io/storage.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <sys/file.h>
#include <thread>
#include <unistd.h>

namespace qft::hub {
namespace {

int open_at(const std::filesystem::path& path) {
  int fd = -1;
  for (int tries = 0; fd < 0 && tries < 10; ++tries) {  // another process may be removing the folder
    io::posix_storage().create_directory(path.parent_path());
    fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0 && (errno == EACCES || errno == EROFS)) fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);  // another user's file
    if (fd < 0 && errno != ENOENT) break;
  }
  require(fd >= 0, "cannot make the lock '{}': {}", path.string(), std::strerror(errno));
  return fd;
}

}  // namespace

FileLock::FileLock(const std::filesystem::path& path, const std::function<void()>& waits,
                   const std::function<bool()>& keep_going) {
  fd_ = open_at(path);
  for (bool first = true;; first = false) {
    if (flock(fd_, LOCK_EX | LOCK_NB) == 0) {
      held_ = io::is_same_file(fd_, path);
      if (held_) return;
      close(fd_);
      fd_ = open_at(path);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return;  // ENOLCK, ENOSYS, EOPNOTSUPP
    if (first) waits();
    if (!keep_going()) {
      close(fd_);
      fail("stopped waiting for '{}', which another process holds", path.string());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    activity::tick();
  }
}

void FileLock::remove_free(const std::filesystem::path& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  if (flock(fd, LOCK_EX | LOCK_NB) == 0 && io::is_same_file(fd, path)) unlink(path.c_str());
  close(fd);
}

FileLock::~FileLock() {
  close(fd_);
}

}  // namespace qft::hub
