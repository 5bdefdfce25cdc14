#include "qft/checkpoint/reshard.h"

#include "qft/checkpoint/checkpoint.h"
#include "qft/checkpoint/verify.h"
#include "qft/core/error.h"
#include "qft/core/member.h"
#include "qft/io/file.h"
#include "qft/io/safetensors.h"

#include <algorithm>
#include <set>

#include "tensor_source.h"

namespace qft::checkpoint {
namespace {

namespace fs = std::filesystem;

// Returns the slices of rank `rank` of `ranks`. The last rank also gets tensors without elements.
std::vector<TensorSlice> slices_of(const Manifest& manifest, int rank, int ranks) {
  const auto r = static_cast<std::uint64_t>(rank), n = static_cast<std::uint64_t>(ranks);
  std::vector<TensorSlice> slices;
  for (const TensorRecord& t : manifest.tensors) {
    const std::uint64_t total = t.elements(), each = total / n, rest = total % n;
    const std::uint64_t begin = r * each + std::min(r, rest), end = begin + each + (r < rest ? 1 : 0);
    if (begin < end || (total == 0 && r + 1 == n)) slices.push_back({t.name, t.dtype, t.shape, Box::whole(t.shape), begin, end});
  }
  return slices;
}

FileRecord write_slices(io::Storage& storage, const Checkpoint& source, const fs::path& dir, const std::string& name,
                        const std::vector<TensorSlice>& slices, std::vector<TensorRecord>& tensors) {
  std::vector<io::TensorSpec> specs;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    SliceRecord record = record_slice(slices[i], name);
    const auto tensor = std::lower_bound(tensors.begin(), tensors.end(), slices[i].name,
                                         [](const TensorRecord& t, const std::string& n) { return t.name < n; });
    tensor->add(slices[i].box, record.tensor.boxes.front().ranges.front());
    specs.push_back(std::move(record.entry));
  }
  io::SafetensorsWriter writer(storage, dir / name, std::move(specs), {{"format", kShardFormat}});
  std::vector<char> buffer;
  for (const TensorSlice& slice : slices)
    for_each_piece(slice.end - slice.begin, [&](std::uint64_t begin, std::uint64_t end) {
      buffer.resize((end - begin) * size_of(slice.dtype));
      source.read_tensor_range(slice.name, slice.begin + begin, slice.begin + end, buffer.data());
      writer.append(buffer.data(), buffer.size());
    });
  writer.finish();
  return {name, writer.file_bytes(), writer.checksum()};
}

// Copies the files without slices. Their recorded checksums are kept: verify() has just checked them.
void copy_others(io::Storage& storage, const Checkpoint& source, const fs::path& dir, Manifest& manifest) {
  const std::set<std::string> state_files = files_with_slices(source.manifest());
  for (const FileRecord& file : source.manifest().files) {
    if (state_files.count(file.name)) continue;
    if (const fs::path folder = fs::path(file.name).parent_path(); !folder.empty()) storage.create_directory(dir / folder);
    io::copy_file(storage, member_at(source.dir(), file.name), dir / file.name);
    manifest.files.push_back(file);
  }
}

}  // namespace

Manifest reshard(io::Storage& storage, const fs::path& from, const fs::path& to, int ranks) {
  if (ranks < 1 || ranks > 99999) fail_config("a checkpoint cannot be for {} ranks: give 1 to 99999", ranks);
  io::require_absent_or_empty(to, "output");
  require_checkpoint(from);
  const Checkpoint source = Checkpoint::open(from);
  if (const auto step = step_of(to.filename().string()); step && *step != source.manifest().step)
    fail_config("output '{}' is the name of step {}, but '{}' is of step {}: name it {}", to.string(), *step, from.string(),
                source.manifest().step, directory_name(source.manifest().step));
  require(!source.manifest().tensors.empty(),
          "'{}' holds no training state (save_only_model): it has no shards, and any number of ranks can read it", from.string());
  const VerifyReport report = verify(from);
  require(report.ok(), "'{}' is damaged and is not resharded: {}", from.string(), report.ok() ? "" : report.errors.front());
  Manifest manifest = source.manifest();
  manifest.world_size = ranks;
  manifest.files.clear();
  for (TensorRecord& tensor : manifest.tensors) tensor.boxes.clear();
  io::CommitDir commit(storage, to);
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<TensorSlice> slices = slices_of(manifest, rank, ranks);
    if (slices.empty()) continue;
    manifest.files.push_back(
        write_slices(storage, source, commit.temp(), slice_file_name(kStateStem, rank, ranks), slices, manifest.tensors));
  }
  copy_others(storage, source, commit.temp(), manifest);
  std::sort(manifest.files.begin(), manifest.files.end(),
            [](const FileRecord& a, const FileRecord& b) { return a.name < b.name; });
  manifest.check();
  io::write_file(storage, commit.temp() / kManifestFile, manifest.to_text());
  commit.commit();
  return manifest;
}

}  // namespace qft::checkpoint
