#include "tensor_source.h"

#include "qft/core/error.h"
#include "qft/core/member.h"
#include "qft/io/file.h"

#include <algorithm>
#include <set>

#include "slices.h"

namespace qft::checkpoint {
namespace {

namespace fs = std::filesystem;

// Safetensors files of `dir`, sorted, without those that only hold ranges of state tensors.
std::vector<fs::path> weight_files(const fs::path& dir, const Manifest* manifest) {
  std::vector<fs::path> files;
  if (manifest != nullptr) {
    const std::set<std::string> state_files = files_with_slices(*manifest);
    for (const FileRecord& file : manifest->files)
      if (file.name.ends_with(".safetensors") && !state_files.count(file.name)) files.push_back(member_of(dir, file.name));
    return files;
  }
  for (const auto& item : fs::directory_iterator(dir))
    if (item.path().extension() == ".safetensors") files.push_back(member_of(dir, item.path().filename().string()));
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

TensorSource TensorSource::open(const fs::path& dir) {
  io::require_directory(dir, "checkpoint");
  TensorSource source;
  source.dir_ = dir;
  if (fs::exists(dir / kManifestFile)) {
    source.checkpoint_ = Checkpoint::open(dir);
    for (const TensorRecord& t : source.manifest()->tensors)
      source.tensors_[t.name] = {t.dtype, t.shape, t.elements(), nullptr, nullptr};
  }
  for (const fs::path& path : weight_files(dir, source.manifest())) {
    source.files_.push_back(std::make_unique<io::SafetensorsFile>(io::SafetensorsFile::open(path)));
    const io::SafetensorsFile& file = *source.files_.back();
    for (const io::TensorEntry& entry : file.entries()) {
      const auto [at, fresh] =
          source.tensors_.try_emplace(entry.name, Tensor{entry.dtype, entry.shape, entry.elements(), &file, &entry});
      require(fresh, "tensor '{}' is in '{}' and in '{}': which one counts is not known", entry.name,
              at->second.file != nullptr ? at->second.file->path().string() : (dir / kManifestFile).string(), path.string());
    }
  }
  require(!source.tensors_.empty(), "'{}' holds no tensors: it has neither {} nor safetensors files", dir.string(),
          kManifestFile);
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

}  // namespace qft::checkpoint
