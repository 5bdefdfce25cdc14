#include "tensor_source.h"

#include "qft/core/error.h"
#include "qft/core/member.h"
#include "qft/io/file.h"
#include "qft/io/model_files.h"

#include <algorithm>

#include <fmt/ranges.h>

namespace qft::checkpoint {
namespace {

namespace fs = std::filesystem;

// Returns the weight files, sorted, without files that only hold ranges of state tensors.
std::vector<fs::path> weight_files(const fs::path& path, const Manifest* manifest) {
  if (fs::is_regular_file(path)) return {path};
  std::vector<fs::path> files;
  if (manifest == nullptr) {
    for (const fs::path& file : io::weight_files(path)) files.push_back(member_of(path, file.filename().string()));
    return files;
  }
  const std::set<std::string> state_files = files_with_slices(*manifest);
  for (const FileRecord& file : manifest->files)
    if (file.name.ends_with(".safetensors") && !state_files.count(file.name)) files.push_back(member_at(path, file.name));
  return files;
}

}  // namespace

TensorSource TensorSource::open(const fs::path& path) {
  if (!fs::is_regular_file(path)) io::require_directory(path, "checkpoint");
  TensorSource source;
  source.dir_ = path;
  if (fs::exists(path / kManifestFile)) {
    source.checkpoint_ = Checkpoint::open(path);
    for (const TensorRecord& t : source.manifest()->tensors)
      source.tensors_[t.name] = {t.dtype, t.shape, t.elements(), nullptr, nullptr};
  }
  for (const fs::path& from : weight_files(path, source.manifest())) {
    source.files_.push_back(io::open_tensor_file(from));
    const io::TensorFile& file = *source.files_.back();
    for (const io::TensorEntry& entry : file.entries()) {
      const auto [at, fresh] =
          source.tensors_.try_emplace(entry.name, Tensor{entry.dtype, entry.shape, entry.elements(), &file, &entry});
      require(fresh, "tensor '{}' is in '{}' and in '{}': it is unclear which one counts", entry.name,
              at->second.file != nullptr ? at->second.file->path().string() : (path / kManifestFile).string(), from.string());
    }
  }
  require(!source.tensors_.empty(), "'{}' holds no tensors: it has neither {} nor weight files", path.string(), kManifestFile);
  return source;
}

void TensorSource::read(const std::string& name, std::uint64_t begin, std::uint64_t end, void* dst) const {
  const Tensor& tensor = tensors_.at(name);
  if (tensor.file == nullptr) return checkpoint_->read_tensor_range(name, begin, end, dst);
  const std::uint64_t width = size_of(tensor.dtype);
  tensor.file->read(*tensor.entry, begin * width, (end - begin) * width, dst);
}

void for_each_piece(std::uint64_t elements, const std::function<void(std::uint64_t, std::uint64_t)>& body) {
  for (std::uint64_t begin = 0; begin < elements; begin += kPieceElements)
    body(begin, std::min(elements, begin + kPieceElements));
}

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

std::vector<TensorSlice> slices_in_boxes(const std::string& name, DType dtype, const Shape& shape, const BoxesRange& range) {
  std::vector<TensorSlice> slices;
  for (const BoxPart& part : parts_of(range))
    slices.push_back({name, dtype, shape, part.range.box, part.range.begin, part.range.end});
  return slices;
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
