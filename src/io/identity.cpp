#include "qft/io/identity.h"

#include "qft/core/hash.h"

#include <sys/stat.h>
#include <vector>

namespace qft::io {
namespace {

constexpr std::uint64_t kWholeBytes = std::uint64_t{1} << 20, kSampleBytes = std::uint64_t{64} << 10;
constexpr int kSamples = 10;

}  // namespace

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
