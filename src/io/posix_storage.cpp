#include "qft/core/activity.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/io/file.h"
#include "qft/io/storage.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

namespace qft::io {
namespace {

namespace fs = std::filesystem;

/// Returns the system's message, with a remedy if the disk is full.
std::string reason(int code) {
  const bool full = code == ENOSPC || code == EDQUOT;
  return fmt::format("{}{}", std::strerror(code), full ? ": free space there, or choose another place" : "");
}

class PosixFile : public WritableFile {
 public:
  explicit PosixFile(const fs::path& path) : path_(path) {
    fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    require(fd_ >= 0, "cannot create '{}': {}", path.string(), reason(errno));
  }
  ~PosixFile() override {
    if (fd_ >= 0) ::close(fd_);
  }

  void append(const void* data, std::uint64_t bytes) override {
    const auto* p = static_cast<const char*>(data);
    for (std::uint64_t done = 0; done < bytes;) {
      const ssize_t n = ::write(fd_, p + done, bytes - done);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0)
        fail("cannot write '{}': {} of {} bytes at offset {} written ({})", path_.string(), done, bytes, written_,
             n < 0 ? reason(errno) : "the system wrote nothing");
      done += static_cast<std::uint64_t>(n);
      written_ += static_cast<std::uint64_t>(n);
      activity::tick();
    }
  }

  void sync() override {
    require(::fsync(fd_) == 0, "cannot sync '{}' ({} bytes) to disk: {}", path_.string(), written_, reason(errno));
  }

  void close() override {
    const int fd = fd_;
    fd_ = -1;
    require(::close(fd) == 0, "cannot finish '{}' ({} bytes): {}", path_.string(), written_, reason(errno));
  }

 private:
  fs::path path_;
  int fd_ = -1;
  std::uint64_t written_ = 0;
};

class PosixStorage : public Storage {
 public:
  std::unique_ptr<WritableFile> create(const fs::path& path) override { return std::make_unique<PosixFile>(path); }

  void create_directory(const fs::path& dir) override {
    std::error_code code;
    fs::create_directories(dir, code);
    require(!code, "cannot make directory '{}': {}", dir.string(), code.message());
  }

  void rename(const fs::path& from, const fs::path& to) override {
    require(::rename(from.c_str(), to.c_str()) == 0, "cannot rename '{}' to '{}': {}", from.string(), to.string(),
            std::strerror(errno));
  }

  void remove(const fs::path& path) override {
    require(::remove(path.c_str()) == 0, "cannot remove '{}': {}", path.string(), std::strerror(errno));
  }

  std::vector<std::string> list(const fs::path& dir) override {
    std::error_code code;
    std::vector<std::string> names;
    for (fs::directory_iterator it(dir, code), end; !code && it != end; it.increment(code))
      names.push_back(it->path().filename().string());
    require(!code, "cannot list directory '{}': {}", dir.string(), code.message());
    std::sort(names.begin(), names.end());
    return names;
  }

  bool exists(const fs::path& path) override { return fs::exists(status(path)); }
  bool is_directory(const fs::path& path) override { return fs::is_directory(status(path)); }

  void sync_directory(const fs::path& dir) override {
    const int fd = ::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    require(fd >= 0, "cannot open directory '{}': {}", dir.string(), std::strerror(errno));
    const int result = ::fsync(fd);
    const int reason = errno;
    ::close(fd);
    // Some network file systems cannot fsync a directory and return EINVAL: they make names durable themselves.
    require(result == 0 || reason == EINVAL, "cannot sync directory '{}' to disk: {}", dir.string(), std::strerror(reason));
  }

 private:
  // Status of the name itself: links are not followed, so that a removal never leaves the directory.
  static fs::file_status status(const fs::path& path) {
    std::error_code code;
    const fs::file_status status = fs::symlink_status(path, code);
    require(status.type() != fs::file_type::none, "cannot stat '{}': {}", path.string(), code.message());
    return status;
  }
};

fs::path parent_of(const fs::path& path) {
  const fs::path parent = path.parent_path();
  return parent.empty() ? fs::path(".") : parent;
}

// "a/b/" names the directory "a/b".
fs::path without_trailing_slash(fs::path path) {
  return path.has_filename() ? path : path.parent_path();
}

// Cleans up after an error: a second error must not hide the first.
void remove_quietly(Storage& storage, const fs::path& path) noexcept {
  try {
    remove_tree(storage, path);
  } catch (const std::exception& e) {
    log::warn("left '{}' behind: {}", path.string(), e.what());
  }
}

}  // namespace

Storage& posix_storage() {
  static PosixStorage storage;
  return storage;
}

void remove_tree(Storage& storage, const fs::path& path) {
  if (!storage.exists(path)) return;
  if (storage.is_directory(path))
    for (const std::string& name : storage.list(path)) remove_tree(storage, path / name);
  storage.remove(path);
}

void write_file(Storage& storage, const fs::path& path, std::string_view content) {
  const auto file = storage.create(path);
  file->append(content.data(), content.size());
  file->sync();
  file->close();
}

void copy_file(Storage& storage, const fs::path& from, const fs::path& to) {
  const File source = File::open_read(from);
  const auto file = storage.create(to);
  std::vector<char> buffer(std::min<std::uint64_t>(source.size(), 4 << 20));
  for (std::uint64_t done = 0; done < source.size();) {
    const std::uint64_t part = std::min<std::uint64_t>(buffer.size(), source.size() - done);
    source.pread(done, buffer.data(), part);
    file->append(buffer.data(), part);
    done += part;
  }
  file->sync();
  file->close();
}

void atomic_write_file(Storage& storage, const fs::path& path, std::string_view content) {
  const fs::path temp = CommitDir::temp_path(path);
  try {
    write_file(storage, temp, content);
    storage.rename(temp, path);
  } catch (...) {
    remove_quietly(storage, temp);
    throw;
  }
  storage.sync_directory(parent_of(path));
}

void sync_file(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  require(fd >= 0, "cannot open '{}': {}", path.string(), std::strerror(errno));
  const int result = ::fsync(fd);
  const int reason = errno;
  ::close(fd);
  require(result == 0, "cannot sync '{}' to disk: {}", path.string(), std::strerror(reason));
}

fs::path CommitDir::temp_path(const fs::path& target, const std::string& owner) {
  return parent_of(target) / (std::string(kTempPrefix) + target.filename().string() + (owner.empty() ? "" : "." + owner));
}

CommitDir::CommitDir(Storage& storage, fs::path target, std::string owner)
    : storage_(storage), target_(without_trailing_slash(std::move(target))), temp_(temp_path(target_, owner)) {
  remove_tree(storage_, temp_);
  storage_.create_directory(temp_);
}

CommitDir::~CommitDir() {
  if (!committed_) remove_quietly(storage_, temp_);
}

void CommitDir::commit() {
  storage_.sync_directory(temp_);
  storage_.rename(temp_, target_);
  committed_ = true;
  storage_.sync_directory(parent_of(target_));
}

}  // namespace qft::io
