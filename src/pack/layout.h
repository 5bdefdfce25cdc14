// Where the pack's bytes lie, and which rank writes which.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <utility>
#include <vector>

#include "frame.h"
#include "part.h"

namespace qft::pack {

/// Per array of the pack: elements, without the leading 0 of offsets.
using Sizes = std::array<std::int64_t, kPackArrays>;

inline bool has_weights(const Sizes& elements) {
  return elements[index_of(PackArray::label_span_weights)] > 0;
}

/// The elements before each chunk, and [chunks]: all.
std::vector<Sizes> first_elements(const std::vector<PartSummary>& parts);

/// Per array: its first byte in the file; 0 for one that the pack does not have.
using Offsets = std::array<std::uint64_t, kPackArrays>;

/// Makes the file with everything but the arrays' contents. For one process, without MPI-IO: so the bytes do
/// not depend on the number of ranks, and no error of the many writes that follow leaves HDF5 with a file that it cannot close.
Offsets lay_out(const std::filesystem::path& path, const PackAttributes& attributes, const Sizes& elements);

/// Those of a chunk's array; `first`: the elements before the chunk.
Stretch stretch_of(PackArray array, const Offsets& offsets, const Sizes& first, const PartSummary& part);

/// Which owner (a worker of a rank) writes which bytes: its own chunks', moved down to multiples of
/// kAlignment, so that no two write into one page (network file systems write back whole ones) or one stripe.
class Ownership {
 public:
  static constexpr std::uint64_t kAlignment = 1 << 20;

  Ownership(const Offsets& offsets, const std::vector<Sizes>& first, int owners);

  /// The pieces of `stretch` that `owner` has.
  std::vector<Stretch> pieces(int owner, Stretch stretch) const;

 private:
  struct Cut {
    std::uint64_t begin;
    int owner;
  };
  std::vector<Cut> cuts_;  // by begin; of several at one place the last counts
};

/// A file written at given places.
class OutputFile {
 public:
  /// Throws Error naming path and reason, as all calls here. `flags`: of open(2), beside O_WRONLY.
  OutputFile(const std::filesystem::path& path, int flags);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  /// Takes the room now, so that a full disk is known before the first byte; does nothing where the file
  /// system cannot. Without `keep_size` the file grows to it.
  void reserve(std::int64_t bytes, bool keep_size);
  void write(std::uint64_t offset, const void* data, std::uint64_t bytes);
  /// Syncs and closes: what the system finds late (NFS, quotas) is an error here.
  void finish();

 private:
  void check(bool ok, const char* action) const;
  std::filesystem::path path_;
  int fd_;
};

}  // namespace qft::pack
