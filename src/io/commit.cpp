#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/io/file.h"
#include "qft/io/storage.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

namespace qft::io {
namespace {

namespace fs = std::filesystem;

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
