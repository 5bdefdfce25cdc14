#include "streams.h"

#include "qft/core/activity.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "copies.h"
#include <fmt/format.h>

namespace qft::inputs {

namespace fs = std::filesystem;
namespace {

constexpr std::int64_t kFlush = std::int64_t{32} << 20;

}  // namespace

std::uint64_t StreamPosition::next(std::uint64_t most) const {
  return std::min(most, files_[file].bytes - in_file);
}

StreamReader::StreamReader(fs::path base, const std::vector<StagedFile>& files) : base_(std::move(base)), files_(files) {}

StreamReader::~StreamReader() {
  if (fd_ >= 0) close(fd_);
}

void StreamReader::read(std::span<std::byte> bytes) {
  while (!bytes.empty() && !at_.done()) {
    const fs::path path = base_ / files_[at_.file].path;
    if (!hasher_) {
      hasher_.emplace();
      fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
      if (fd_ < 0 && error_.empty()) error_ = fmt::format("cannot read '{}': {}", path.string(), std::strerror(errno));
      if (fd_ >= 0) posix_fadvise(fd_, 0, 0, POSIX_FADV_SEQUENTIAL);
    }
    const std::uint64_t wanted = at_.next(bytes.size());
    std::uint64_t got = 0;
    while (fd_ >= 0 && got < wanted) {
      const ssize_t n = pread(fd_, bytes.data() + got, wanted - got, static_cast<off_t>(at_.in_file + got));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        if (error_.empty())
          error_ = fmt::format("cannot read '{}' at byte {}: {}", path.string(), at_.in_file + got,
                               n < 0 ? std::strerror(errno) : "the file ends there; did it change?");
        break;
      }
      got += static_cast<std::uint64_t>(n);
    }
    std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(got), bytes.begin() + static_cast<std::ptrdiff_t>(wanted),
              std::byte{0});
    hasher_->update(bytes.data(), wanted);
    at_.advance(wanted);
    bytes = bytes.subspan(wanted);
    if (at_.at_end_of_file()) close_file();
  }
}

void StreamReader::close_file() {
  files_[at_.file].hash = hasher_->hex();
  hasher_.reset();
  struct stat now{};
  const StagedFile& file = files_[at_.file];
  if (fd_ >= 0 && error_.empty() &&
      (fstat(fd_, &now) != 0 || changed_at(now) != file.changed || static_cast<std::uint64_t>(now.st_size) != file.bytes))
    error_ = fmt::format("'{}' changed during staging: run again when nobody writes to it", (base_ / file.path).string());
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
  at_.next_file();
}

std::vector<StagedFile> StreamReader::finish() {
  for (; !at_.done(); at_.next_file()) files_[at_.file].hash = Hasher().hex();  // empty files at the end
  return files_;
}

StreamWriter::StreamWriter(fs::path made, const std::vector<StagedFile>& files) : made_(std::move(made)), files_(files) {}

StreamWriter::~StreamWriter() {
  if (fd_ >= 0) close(fd_);
}

void StreamWriter::open_file() {
  hasher_.emplace();
  const fs::path path = made_ / files_[at_.file].path;
  std::error_code code;
  fs::create_directories(path.parent_path(), code);
  fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0444);
  if (fd_ < 0 && error_.empty()) error_ = fmt::format("cannot write '{}': {}", path.string(), std::strerror(errno));
}

void StreamWriter::write_some(std::span<const std::byte> bytes) {
  hasher_->update(bytes.data(), bytes.size());
  while (fd_ >= 0 && error_.empty() && !bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const int code = n < 0 ? errno : ENOSPC;
      error_ = fmt::format("cannot write '{}': {}", (made_ / files_[at_.file].path).string(), std::strerror(code));
      return;
    }
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    unflushed_ += n;
  }
  if (unflushed_ < kFlush || fd_ < 0) return;
  // Flushing early lets the disk work during the transfer, so that little is left at the end.
  sync_file_range(fd_, 0, 0, SYNC_FILE_RANGE_WRITE);
  unflushed_ = 0;
}

void StreamWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty() && !at_.done()) {
    if (!hasher_) open_file();
    const std::uint64_t some = at_.next(bytes.size());
    write_some(bytes.first(some));
    at_.advance(some);
    bytes = bytes.subspan(some);
    if (at_.at_end_of_file()) close_file();
  }
}

void StreamWriter::close_file() {
  StagedFile& file = files_[at_.file];
  file.hash = hasher_->hex();
  hasher_.reset();
  unflushed_ = 0;
  const auto changed = std::chrono::nanoseconds(file.changed);
  const auto seconds = std::chrono::floor<std::chrono::seconds>(changed);
  const timespec time{seconds.count(), (changed - seconds).count()};
  const timespec times[] = {time, time};
  if (fd_ >= 0) futimens(fd_, times);  // only for people: the manifest records the copy's own time
  if (fd_ >= 0 && close(fd_) != 0 && error_.empty())
    error_ = fmt::format("cannot finish '{}': {}", (made_ / file.path).string(), std::strerror(errno));
  fd_ = -1;
  at_.next_file();
}

std::string StreamWriter::finish(const std::vector<StagedFile>& sent) {
  while (!at_.done()) {  // empty files at the end
    if (!hasher_) open_file();
    close_file();
  }
  for (std::size_t i = 0; i < files_.size() && error_.empty(); ++i)
    if (files_[i].hash != sent[i].hash)
      error_ = fmt::format("'{}' arrived with the hash {} but was sent with {}: check this node's memory and network",
                           (made_ / files_[i].path).string(), files_[i].hash, sent[i].hash);
  for (const StagedFile& file : files_) sync(made_ / file.path);
  return error_;
}

void StreamWriter::sync(const fs::path& path) {
  if (!error_.empty()) return;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 || fsync(fd) != 0) error_ = fmt::format("cannot sync '{}' to disk: {}", path.string(), std::strerror(errno));
  if (fd >= 0) close(fd);
  activity::tick();
}

}  // namespace qft::inputs
