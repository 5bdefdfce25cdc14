#include "slices.h"

#include "qft/core/error.h"

namespace qft::checkpoint {

std::string slice_file_name(const std::string& stem, int rank, int ranks) {
  return fmt::format("{}-{:05}-of-{:05}.safetensors", stem, rank, ranks);
}

void require_inside(const TensorSlice& slice) {
  require(slice.box.inside(slice.shape), "tensor '{}' has shape {}, box {} given", slice.name, Box::whole(slice.shape).describe(),
          slice.box.describe());
  const std::uint64_t total = slice.box.elements();
  require(slice.begin <= slice.end && slice.end <= total, "tensor '{}' has {} elements in {}, slice [{}, {}) given", slice.name, total,
          slice.box.describe(), slice.begin, slice.end);
}

SliceRecord record_slice(const TensorSlice& slice, const std::string& file) {
  require_inside(slice);
  SliceRecord record{{slice.name, slice.dtype, slice.shape, {}}, {slice.name, slice.dtype, slice.box.extent}};
  if (slice.box != Box::whole(slice.shape)) record.entry.name += slice.box.describe();
  if (slice.begin != 0 || slice.end != slice.box.elements()) {
    record.entry.name += fmt::format("[{}:{}]", slice.begin, slice.end);
    record.entry.shape = {static_cast<std::int64_t>(slice.end - slice.begin)};
  }
  record.tensor.ranges.push_back({slice.box, slice.begin, slice.end, file, record.entry.name});
  return record;
}

}  // namespace qft::checkpoint
