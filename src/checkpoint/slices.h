// The layout of a tensor's slice in the file of its owner rank. Private to checkpoint.
#pragma once

#include "qft/checkpoint/checkpoint.h"

#include <set>
#include <string>

namespace qft::checkpoint {

/// Returns "<stem>-<rank>-of-<ranks>.safetensors".
std::string slice_file_name(const std::string& stem, int rank, int ranks);

/// Returns the names of the files that hold slices; a checkpoint's other files are independent of the ranks.
std::set<std::string> files_with_slices(const Manifest& manifest);

/// Throws Error unless the slice's box is inside its tensor, and its range inside the box.
void require_inside(const TensorSlice& slice);

/// Returns the file's entry that holds the range; throws Error unless it matches the manifest.
const io::TensorEntry& require_entry(const io::SafetensorsFile& file, const TensorRecord& tensor, const RangeRecord& range);

/// One slice in two forms: as the manifest records it, and as `file` holds it (a whole box keeps its shape, a part is flat).
struct SliceRecord {
  TensorRecord tensor;  // with only this range
  io::TensorSpec entry;
};
/// Throws like require_inside().
SliceRecord record_slice(const TensorSlice& slice, const std::string& file);

}  // namespace qft::checkpoint
