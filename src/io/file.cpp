#include "qft/io/file.h"

#include "qft/core/activity.h"
#include "qft/core/error.h"
#include "qft/core/file_ending.h"
#include "qft/core/hash.h"
#include "qft/core/json.h"
#include "qft/io/storage.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace qft::io {
namespace {

constexpr std::uint64_t kWholeBytes = std::uint64_t{1} << 20, kSampleBytes = std::uint64_t{64} << 10;
constexpr int kSamples = 10;

}  // namespace

File File::open_read(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe must not block
  require(fd >= 0, "cannot open '{}': {}", path.string(), std::strerror(errno));
  File file(path, fd, 0);
  struct stat info{};
  require(::fstat(fd, &info) == 0, "cannot stat '{}': {}", path.string(), std::strerror(errno));
  require(S_ISREG(info.st_mode), "'{}' is {}, not a file", path.string(),
          S_ISDIR(info.st_mode) ? "a directory" : "a special file");
  file.size_ = static_cast<std::uint64_t>(info.st_size);
  return file;
}

File::File(File&& other) noexcept : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  return *this;
}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

void File::pread(std::uint64_t offset, void* dst, std::uint64_t bytes) const {
  std::uint64_t got = 0;
  while (got < bytes) {
    const ssize_t n = ::pread(fd_, static_cast<char*>(dst) + got, bytes - got, static_cast<off_t>(offset + got));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      fail("cannot read '{}': wanted {} bytes at offset {}, got {} ({})", path_.string(), bytes, offset, got,
           n < 0 ? std::strerror(errno) : "end of file");
    got += static_cast<std::uint64_t>(n);
    activity::tick();
  }
}

std::string File::lead() const {
  std::string bytes(std::min<std::uint64_t>(size_, kLeadBytes), '\0');
  pread(0, bytes.data(), bytes.size());
  return bytes;
}

Mapping::Mapping(const File& file, std::uint64_t offset, std::uint64_t bytes) : size_(bytes) {
  require(offset <= file.size() && bytes <= file.size() - offset, "cannot map {} bytes at offset {} of '{}': it has {}", bytes,
          offset, file.path().string(), file.size());
  if (bytes == 0) return;
  const std::uint64_t shift = offset % static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  mapped_ = bytes + shift;
  void* base = ::mmap(nullptr, mapped_, PROT_READ, MAP_SHARED, file.fd(), static_cast<off_t>(offset - shift));
  require(base != MAP_FAILED, "cannot map {} bytes at offset {} of '{}': {}", bytes, offset, file.path().string(),
          std::strerror(errno));
  base_ = base;
  data_ = static_cast<const std::byte*>(base) + shift;
}

Mapping::Mapping(Mapping&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)),
      mapped_(other.mapped_),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(mapped_, other.mapped_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Mapping::~Mapping() {
  if (base_ != nullptr) ::munmap(base_, mapped_);
}

void Mapping::will_need() const {
  if (base_ != nullptr) ::madvise(base_, mapped_, MADV_WILLNEED);
}

void Mapping::release(std::uint64_t offset, std::uint64_t bytes) const {
  if (base_ == nullptr || bytes == 0) return;
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t shift = mapped_ - size_;
  const std::uint64_t begin = (offset + shift) / page * page, end = (offset + bytes + shift) / page * page;
  if (begin < end) ::madvise(static_cast<char*>(base_) + begin, end - begin, MADV_DONTNEED);
}

std::string read_text_file(const std::filesystem::path& path, std::uint64_t limit) {
  const File file = File::open_read(path);
  require(file.size() <= limit, "'{}' has {} bytes, more than the limit of {} for this kind of file", path.string(), file.size(),
          limit);
  std::string text(file.size(), '\0');
  file.pread(0, text.data(), text.size());
  const std::string fault = describe_non_text(text, path);
  require(fault.empty(), "{}", fault);
  return text;
}

nlohmann::json read_json(const std::filesystem::path& path) {
  return parse_json(read_text_file(path), fmt::format("'{}'", path.string()));
}

void require_directory(const std::filesystem::path& path, const std::string& what) {
  std::error_code code;
  const auto status = std::filesystem::status(path, code);
  require(std::filesystem::exists(status), "{} '{}' does not exist", what, path.string());
  require(std::filesystem::is_directory(status), "{} '{}' is not a directory", what, path.string());
}

void require_absent_or_empty(const std::filesystem::path& path, const std::string& what) {
  namespace fs = std::filesystem;
  if (fs::exists(fs::symlink_status(path)) && (!fs::is_directory(path) || !fs::is_empty(path)))
    fail_config("{} '{}' exists and is not an empty directory: choose another name or remove it", what, path.string());
}

void probe_writable(const std::filesystem::path& dir) {
  std::error_code code;
  std::filesystem::create_directories(dir, code);
  require(!code, "cannot make directory '{}': {}", dir.string(), code.message());
  std::string name = (dir / (std::string(kTempPrefix) + "probe-XXXXXX")).string();
  const int fd = ::mkstemp(name.data());
  require(fd >= 0, "cannot write in '{}': {}", dir.string(), std::strerror(errno));
  const char byte = 0;
  const bool written = ::write(fd, &byte, 1) == 1;
  const int reason = errno;
  ::close(fd);
  ::unlink(name.c_str());
  require(written, "cannot write in '{}': {}", dir.string(), std::strerror(reason));
}

bool is_same_file(int fd, const std::filesystem::path& path) {
  struct stat own{}, named{};
  return fstat(fd, &own) == 0 && stat(path.c_str(), &named) == 0 && own.st_ino == named.st_ino && own.st_dev == named.st_dev;
}

std::string sampled_hash(const File& file) {
  Hasher hasher;
  hasher.update(std::to_string(file.size()));
  const bool whole = file.size() <= kWholeBytes;
  std::vector<char> buffer(whole ? file.size() : kSampleBytes);
  for (int i = 0; i < (whole ? 1 : kSamples); ++i) {
    const std::uint64_t offset = whole ? 0 : (file.size() - kSampleBytes) / (kSamples - 1) * static_cast<std::uint64_t>(i);
    file.pread(i == kSamples - 1 ? file.size() - kSampleBytes : offset, buffer.data(), buffer.size());
    hasher.update(buffer.data(), buffer.size());
  }
  return hasher.hex().substr(0, 16);
}

}  // namespace qft::io
