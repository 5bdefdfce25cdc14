#include "slices.h"

#include "qft/core/error.h"

#include <fmt/ranges.h>

namespace qft::checkpoint {

std::string slice_file_name(const std::string& stem, int rank, int ranks) {
  return fmt::format("{}-{:05}-of-{:05}.safetensors", stem, rank, ranks);
}

namespace {

/// Returns for example "[0:4, 8:16]".
std::string box_name(const Box& box) {
  std::string text;
  for (std::size_t d = 0; d < box.start.size(); ++d)
    text += fmt::format("{}{}:{}", d == 0 ? "" : ", ", box.start[d], box.start[d] + box.extent[d]);
  return "[" + text + "]";
}

}  // namespace

std::set<std::string> files_with_slices(const Manifest& manifest) {
  std::set<std::string> names;
  for (const TensorRecord& tensor : manifest.tensors)
    for (const BoxRecord& box : tensor.boxes)
      for (const RangeRecord& range : box.ranges) names.insert(range.file);
  return names;
}

void require_inside(const TensorSlice& slice) {
  if (!slice.box.inside(slice.shape))
    fail("tensor '{}' has shape [{}], got box {}", slice.name, fmt::join(slice.shape, ", "), slice.box.describe());
  const std::uint64_t total = slice.box.elements();
  if (slice.begin > slice.end || slice.end > total)
    fail("tensor '{}' has {} elements in the box {}, got slice [{}, {})", slice.name, total, slice.box.describe(), slice.begin,
         slice.end);
}

const io::TensorEntry& require_entry(const io::SafetensorsFile& file, const TensorRecord& tensor, const RangeRecord& range) {
  const io::TensorEntry& entry = file.at(range.entry);
  if (entry.dtype != tensor.dtype || entry.elements() != range.end - range.begin)
    fail("'{}': entry '{}' has {} elements of {}, the manifest says {} of {}", file.path().string(), range.entry,
         entry.elements(), safetensors_name(entry.dtype), range.end - range.begin, safetensors_name(tensor.dtype));
  return entry;
}

SliceRecord record_slice(const TensorSlice& slice, const std::string& file) {
  require_inside(slice);
  SliceRecord record{{slice.name, slice.dtype, slice.shape, {}}, {slice.name, slice.dtype, slice.box.extent}};
  if (slice.box != Box::whole(slice.shape)) record.entry.name += box_name(slice.box);
  if (slice.begin != 0 || slice.end != slice.box.elements()) {
    record.entry.name += fmt::format("[{}:{}]", slice.begin, slice.end);
    record.entry.shape = {static_cast<std::int64_t>(slice.end - slice.begin)};
  }
  record.tensor.add(slice.box, {slice.begin, slice.end, file, record.entry.name});
  return record;
}

}  // namespace qft::checkpoint
