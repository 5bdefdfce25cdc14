#include "part_file.h"

#include "qft/core/activity.h"
#include "qft/core/error.h"
#include "qft/io/file.h"
#include "qft/io/storage.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "store.h"

namespace qft::hub {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kBlock = std::size_t{1} << 20;

std::optional<net::Digest> digest_for(const RemoteFile& file) {
  if (file.check == RemoteFile::Check::size) return std::nullopt;
  const bool git = file.check == RemoteFile::Check::git_blob;
  net::Digest digest(git ? net::Digest::Kind::sha1 : net::Digest::Kind::sha256);
  if (git) digest.update(fmt::format("blob {}", file.bytes)), digest.update(std::string_view("\0", 1));
  return digest;
}

/// Reads to the end and returns the number of bytes; -1 on error.
std::int64_t read_all(int fd, std::optional<net::Digest>& digest) {
  std::vector<char> block(kBlock);
  std::int64_t total = 0;
  for (;;) {
    const ssize_t n = pread(fd, block.data(), block.size(), total);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? -1 : total;
    if (digest) digest->update(block.data(), static_cast<std::size_t>(n));
    total += n;
    activity::tick();
  }
}

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

bool is_right(const fs::path& path, const RemoteFile& file) {
  std::error_code code;
  if (fs::file_size(path, code) != file.bytes || code) return false;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  auto digest = digest_for(file);
  const std::int64_t bytes = read_all(fd, digest);
  close(fd);
  return bytes == static_cast<std::int64_t>(file.bytes) && (!digest || digest->hex() == file.digest);
}

PartFile::PartFile(fs::path path, const RemoteFile& file) : path_(std::move(path)), file_(file) {
  open_file(0);
  digest_ = digest_for(file_);
  const std::int64_t there = read_all(fd_, digest_);
  require(there >= 0, "cannot read '{}': {}", path_.string(), std::strerror(errno));
  size_ = static_cast<std::uint64_t>(there);
  if (size_ > file_.bytes || (size_ > 0 && !digest_)) clear();
}

void PartFile::open_file(int flags) {
  for (int tries = 0; fd_ < 0 && tries < 10; ++tries) {  // another process may remove the folder if it is empty
    io::posix_storage().create_directory(path_.parent_path());
    fd_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | flags, 0666);
    if (fd_ < 0 && errno != ENOENT) break;
  }
  require(fd_ >= 0, "cannot write '{}': {}", path_.string(), std::strerror(errno));
}

PartFile::~PartFile() {
  if (fd_ >= 0) close(fd_);
}

void PartFile::clear() {
  close(fd_);
  fd_ = -1;
  unlink(path_.c_str());
  open_file(O_EXCL);
  size_ = 0;
  digest_ = digest_for(file_);
}

void PartFile::append(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(size_));
    if (n < 0 && errno == EINTR) continue;
    const int code = n < 0 ? errno : ENOSPC;
    if (n <= 0)
      fail("cannot write '{}' after {} of {} bytes: {}{}. The received bytes are kept: run the same command again to resume",
           path_.string(), size_, file_.bytes, std::strerror(code),
           code == ENOSPC || code == EDQUOT ? ": free space there, or choose another cache" : "");
    if (digest_) digest_->update(bytes.data(), static_cast<std::size_t>(n));
    size_ += static_cast<std::uint64_t>(n);
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  activity::tick();
}

std::optional<std::string> PartFile::finish(const fs::path& whole) {
  QFT_ASSERT(size_ == file_.bytes, "{} of {} bytes", size_, file_.bytes);
  if (std::string found = digest_ ? digest_->hex() : ""; found != file_.digest) {
    unlink(path_.c_str());
    return found;
  }
  require(fsync(fd_) == 0, "cannot sync '{}' to disk: {}", path_.string(), std::strerror(errno));
  struct stat status{};
  require(io::is_same_file(fd_, path_) && fstat(fd_, &status) == 0 && static_cast<std::uint64_t>(status.st_size) == file_.bytes,
          "another process replaced '{}' during the download, so this file system may lack locks: run one download at a time",
          path_.string());
  io::posix_storage().rename(path_, whole);
  io::posix_storage().sync_directory(whole.parent_path());
  return std::nullopt;
}

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
