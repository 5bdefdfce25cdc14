#include "frame.h"

#include "qft/core/hash.h"

#include <algorithm>

namespace qft::pack {

std::uint32_t frame_crc(const io::File& file, std::vector<ByteRange> datasets) {
  std::sort(datasets.begin(), datasets.end(), [](const ByteRange& a, const ByteRange& b) { return a.begin < b.begin; });
  datasets.push_back({file.size(), file.size()});
  std::uint32_t crc = 0;
  std::uint64_t at = 0;
  std::vector<char> bytes(1 << 20);
  for (const ByteRange& dataset : datasets) {
    while (at < dataset.begin) {
      const std::uint64_t n = std::min<std::uint64_t>(bytes.size(), dataset.begin - at);
      file.pread(at, bytes.data(), n);
      crc = crc32c(bytes.data(), n, crc);
      at += n;
    }
    at = std::max(at, dataset.end);
  }
  return crc;
}

}  // namespace qft::pack
