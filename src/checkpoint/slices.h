// How a slice of a tensor lies in the file of the rank that owns it. Private to checkpoint.
#pragma once

#include "qft/checkpoint/checkpoint.h"

#include <set>
#include <string>

namespace qft::checkpoint {

/// "<stem>-<rank>-of-<ranks>.safetensors".
std::string slice_file_name(const std::string& stem, int rank, int ranks);

/// The names of the files that hold slices; all others of a checkpoint are files of their own.
std::set<std::string> files_with_slices(const Manifest& manifest);

/// Throws Error unless the slice's box is inside its tensor, and its range inside the box.
void require_inside(const TensorSlice& slice);

/// The entry of the file that holds the range; throws Error unless it is as the manifest says.
const io::TensorEntry& require_entry(const io::SafetensorsFile& file, const TensorRecord& tensor, const RangeRecord& range);

/// The same slice twice: as the manifest records it, and as the file `file` holds it (a whole box keeps its shape, a part is
/// flat).
struct SliceRecord {
  TensorRecord tensor;  // with this one range
  io::TensorSpec entry;
};
/// Throws as require_inside().
SliceRecord record_slice(const TensorSlice& slice, const std::string& file);

}  // namespace qft::checkpoint
