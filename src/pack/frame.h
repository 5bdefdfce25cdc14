// Computes the CRC of a pack's bytes outside its datasets.
#pragma once

#include "qft/io/file.h"

#include <cstdint>
#include <vector>

namespace qft::pack {

/// Bytes [begin, end) of the file.
struct ByteRange {
  std::uint64_t begin = 0, end = 0;
};

/// Returns the CRC32C of the file's bytes outside `datasets`, which may be in any order, lie in the file and do not overlap.
std::uint32_t frame_crc(const io::File& file, std::vector<ByteRange> datasets);

}  // namespace qft::pack
