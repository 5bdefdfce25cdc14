#include "file_lock.h"

#include "qft/core/activity.h"
#include "qft/core/error.h"
#include "qft/io/storage.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <sys/file.h>
#include <thread>
#include <unistd.h>

namespace qft::hub {

FileLock::FileLock(const std::filesystem::path& path, const std::function<void()>& waits, const std::function<bool()>& go_on) {
  io::posix_storage().create_directory(path.parent_path());
  fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  require(fd_ >= 0, "cannot make the lock '{}': {}", path.string(), std::strerror(errno));
  for (bool first = true;; first = false) {
    if (flock(fd_, LOCK_EX | LOCK_NB) == 0) {
      held_ = true;
      return;
    }
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return;  // ENOLCK, ENOSYS, EOPNOTSUPP
    if (first) waits();
    if (!go_on()) {
      close(fd_);
      fail("ended while another process held '{}'", path.string());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    activity::tick();
  }
}

FileLock::~FileLock() {
  close(fd_);
}

}  // namespace qft::hub
