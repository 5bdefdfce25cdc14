// Computes the byte layout of a pack, and the ranges that each rank writes.
#pragma once

#include "qft/io/file.h"

#include <array>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "part.h"

namespace qft::pack {

/// Bytes [begin, end) of the file.
struct ByteRange {
  std::uint64_t begin = 0, end = 0;
};

/// Returns the CRC32C of the file's bytes outside `datasets`, which may be in any order, lie in the file and do not overlap.
std::uint32_t frame_crc(const io::File& file, std::vector<ByteRange> datasets);

/// Elements per array of the pack, without the leading 0 of offsets.
using Sizes = std::array<std::int64_t, kPackArrays>;

inline bool has_weights(const Sizes& elements) {
  return elements[index_of(PackArray::label_span_weights)] > 0;
}

/// Returns the elements before each chunk; entry [chunks] is the total.
std::vector<Sizes> first_elements(const std::vector<PartSummary>& parts);

/// File offset of each array's first byte; 0 for an array that the pack does not have.
using Offsets = std::array<std::uint64_t, kPackArrays>;

/// Creates the file with everything except the arrays' contents. Runs in one process without MPI-IO: the bytes then do not depend
/// on the number of ranks, and an error in the many later writes cannot leave HDF5 with a file that it cannot close.
Offsets lay_out(const std::filesystem::path& path, const PackAttributes& attributes, const Sizes& elements);

/// Returns the byte range of one chunk's array; `first`: the elements before the chunk.
ByteRange byte_range_of(PackArray array, const Offsets& offsets, const Sizes& first, const PartSummary& part);

/// Decides which owner (a worker of a rank) writes which bytes: its own chunks, with the boundaries moved down to multiples of
/// kAlignment. No two owners then write into one page (network file systems write back whole pages) or one stripe.
class Ownership {
 public:
  static constexpr std::uint64_t kAlignment = 1 << 20;

  Ownership(const Offsets& offsets, const std::vector<Sizes>& first, int owners);

  /// Returns the parts of `byte_range` that `owner` writes.
  std::vector<ByteRange> pieces(int owner, ByteRange byte_range) const;

 private:
  struct Cut {
    std::uint64_t begin;
    int owner;
  };
  std::vector<Cut> cuts_;  // sorted by begin; of several cuts at one place the last counts
};

/// A file written at explicit offsets.
class OutputFile {
 public:
  /// Throws Error with path and reason, like all functions here. `flags`: for open(2), in addition to O_WRONLY.
  OutputFile(const std::filesystem::path& path, int flags);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  /// Reserves disk space, so that a full disk is found before the first byte; does nothing if the file system cannot. Without
  /// `keep_size` the file grows to `bytes`.
  void reserve(std::int64_t bytes, bool keep_size);
  void write(std::uint64_t offset, const void* data, std::uint64_t bytes);
  /// Syncs and closes; throws for errors that the system finds late (NFS, quotas).
  void finish();

 private:
  void check(bool ok, const char* action) const;
  std::filesystem::path path_;
  int fd_;
};

}  // namespace qft::pack
