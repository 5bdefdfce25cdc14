#include "slices.h"

#include "qft/core/error.h"

namespace qft::checkpoint {

std::string slice_file_name(const std::string& stem, int rank, int ranks) {
  return fmt::format("{}-{:05}-of-{:05}.safetensors", stem, rank, ranks);
}

SliceRecord record_slice(const TensorSlice& slice, const std::string& file) {
  SliceRecord record{{slice.name, slice.dtype, slice.shape, {}}, {slice.name, slice.dtype, slice.shape}};
  const std::uint64_t total = record.tensor.elements();
  require(slice.begin <= slice.end && slice.end <= total, "tensor '{}' has {} elements, slice [{}, {}) given",
          slice.name, total, slice.begin, slice.end);
  if (slice.begin != 0 || slice.end != total) {
    record.entry.name = fmt::format("{}[{}:{}]", slice.name, slice.begin, slice.end);
    record.entry.shape = {static_cast<std::int64_t>(slice.end - slice.begin)};
  }
  record.tensor.ranges.push_back({slice.begin, slice.end, file, record.entry.name});
  return record;
}

}  // namespace qft::checkpoint
