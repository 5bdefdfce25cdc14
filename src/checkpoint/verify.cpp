#include "qft/checkpoint/verify.h"

#include "qft/checkpoint/manifest.h"
#include "qft/core/convert.h"
#include "qft/core/error.h"
#include "qft/core/hash.h"
#include "qft/core/member.h"
#include "qft/io/file.h"
#include "qft/io/model_files.h"
#include "qft/io/safetensors.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "tensor_source.h"
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace qft::checkpoint {
namespace {

namespace fs = std::filesystem;

// Runs one check and turns an exception into a line of the report.
void guarded(VerifyReport& report, const std::function<void()>& check) {
  try {
    check();
  } catch (const std::exception& e) {
    report.errors.emplace_back(e.what());
  }
}

void check_file(const fs::path& dir, const FileRecord& record, bool checksum) {
  const io::File file = io::File::open_read(member_at(dir, record.name));
  require(file.size() == record.bytes, "'{}' has {} bytes, the manifest says {}", file.path().string(), file.size(),
          record.bytes);
  if (!checksum) return;
  const std::string actual = hash_file(file.path());
  require(actual == record.checksum, "'{}' has checksum {}, the manifest says {}: it is damaged", file.path().string(), actual,
          record.checksum);
}

// Distributes the files by size, largest first, each to the part with the least bytes. Returns true for the files of `part`.
std::vector<bool> share_of(const std::vector<FileRecord>& files, int part, int parts) {
  std::vector<std::size_t> order(files.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return files[a].bytes > files[b].bytes; });
  std::vector<std::uint64_t> load(static_cast<std::size_t>(parts), 0);
  std::vector<bool> mine(files.size(), false);
  for (const std::size_t i : order) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += files[i].bytes + 1;
    mine[i] = least - load.begin() == part;
  }
  return mine;
}

using OpenFiles = std::map<std::string, std::optional<io::SafetensorsFile>>;

void check_range(const fs::path& dir, const TensorRecord& tensor, const RangeRecord& range, OpenFiles& files,
                 VerifyReport& report) {
  const auto [at, added] = files.try_emplace(range.file);
  std::optional<io::SafetensorsFile>& file = at->second;
  if (added) guarded(report, [&] { file = io::SafetensorsFile::open(member_of(dir, range.file)); });
  if (!file) return;
  guarded(report, [&] { require_entry(*file, tensor, range); });
}

// Checks that the safetensors files hold the tensors as the manifest describes them.
void check_tensors(const fs::path& dir, const Manifest& manifest, VerifyReport& report) {
  OpenFiles files;
  for (const TensorRecord& tensor : manifest.tensors)
    for (const BoxRecord& box : tensor.boxes)
      for (const RangeRecord& range : box.ranges) check_range(dir, tensor, range, files, report);
}

void report_unlisted(const fs::path& dir, const Manifest& manifest, VerifyReport& report) {
  const auto holds_listed = [&](const fs::directory_entry& item, const std::string& name) {
    return item.is_directory() &&
           std::ranges::any_of(manifest.files, [&](const FileRecord& file) { return file.name.starts_with(name + "/"); });
  };
  for (const auto& item : fs::directory_iterator(dir)) {
    const std::string name = item.path().filename().string();
    if (name != kManifestFile && manifest.find_file(name) == nullptr && !holds_listed(item, name))
      report.warnings.push_back(fmt::format("'{}' is not in the manifest", item.path().string()));
  }
}

// Checks a file of a directory without a manifest.
void check_plain_file(const fs::path& dir, const fs::path& path, VerifyReport& report) {
  guarded(report, [&] { member_of(dir, path.filename().string()); });
  if (path.extension() == ".json") guarded(report, [&] { io::read_json(path); });
}

VerifyReport verify_plain(const fs::path& dir) {
  VerifyReport report;
  const std::vector<fs::path> weights = io::weight_files(dir);
  for (const auto& item : fs::directory_iterator(dir)) {
    const fs::path& path = item.path();
    if (!item.is_regular_file()) continue;
    check_plain_file(dir, path, report);
    ++report.files;
    report.bytes += item.file_size();
  }
  for (const fs::path& path : weights)
    guarded(report, [&] {
      const auto file = io::open_tensor_file(path);
      report.tensors += file->entries().size();
      const auto format = file->metadata().find("format");
      require(format == file->metadata().end() || format->second != kShardFormat,
              "'{}' is part of a checkpoint of qft, but there is no {}: the checkpoint was never finished", path.string(),
              kManifestFile);
    });
  const bool has_index = std::ranges::any_of(io::kModelWeights, [&](const auto& way) { return fs::exists(dir / way.index); });
  if (has_index) guarded(report, [&] { io::ModelFiles::open(dir); });
  if (weights.empty()) report.errors.push_back(fmt::format("'{}' has neither {} nor weight files", dir.string(), kManifestFile));
  report.warnings.push_back(fmt::format("'{}' has no {}: structure checked, contents not", dir.string(), kManifestFile));
  return report;
}

VerifyReport::NotFinite count(const TensorSource& source, const std::string& name) {
  const TensorSource::Tensor& tensor = source.tensors().at(name);
  VerifyReport::NotFinite found{name};
  const std::size_t room = std::min(tensor.elements, kPieceElements);
  std::vector<char> bytes(room * size_of(tensor.dtype));
  std::vector<double> values(room);
  for_each_piece(tensor.elements, [&](std::uint64_t begin, std::uint64_t end) {
    source.read(name, begin, end, bytes.data());
    to_double(tensor.dtype, bytes.data(), end - begin, values.data());
    for (std::uint64_t i = 0; i < end - begin; ++i) {
      found.nan += std::isnan(values[i]);
      found.infinite += std::isinf(values[i]);
    }
  });
  return found;
}

}  // namespace

VerifyReport verify_share(const fs::path& dir, int part, int parts) {
  VerifyReport report;
  guarded(report, [&] {
    const Manifest manifest = Manifest::read(dir);
    report.has_manifest = true;
    report.tensors = manifest.tensors.size();
    const std::vector<bool> mine = share_of(manifest.files, part, parts);
    for (std::size_t i = 0; i < manifest.files.size(); ++i) {
      guarded(report, [&] { check_file(dir, manifest.files[i], mine[i]); });
      ++report.files;
      report.bytes += manifest.files[i].bytes;
    }
    // A file with a wrong checksum would be reported twice.
    if (report.ok()) check_tensors(dir, manifest, report);
    report_unlisted(dir, manifest, report);
  });
  return report;
}

VerifyReport verify_manifest(const fs::path& dir) {
  VerifyReport report;
  guarded(report, [&] {
    const Manifest manifest = Manifest::read(dir);
    report.has_manifest = true;
    report.tensors = manifest.tensors.size();
    for (const FileRecord& file : manifest.files) {
      guarded(report, [&] { check_file(dir, file, /*checksum=*/false); });
      ++report.files;
      report.bytes += file.bytes;
    }
  });
  return report;
}

VerifyReport verify(const fs::path& dir) {
  io::require_directory(dir, "checkpoint");
  return fs::exists(dir / kManifestFile) ? verify_share(dir, 0, 1) : verify_plain(dir);
}

void find_non_finite(const std::filesystem::path& dir, VerifyReport& report) {
  const TensorSource source = TensorSource::open(dir);
  for (const auto& [name, tensor] : source.tensors()) {
    if (!is_floating(tensor.dtype)) continue;
    VerifyReport::NotFinite found = count(source, name);
    if (found.nan == 0 && found.infinite == 0) continue;
    report.warnings.push_back(
        fmt::format("'{}': tensor '{}' has {} NaN and {} infinite values of {}: resume from an earlier checkpoint", dir.string(),
                    name, found.nan, found.infinite, tensor.elements));
    report.not_finite.push_back(std::move(found));
  }
}

}  // namespace qft::checkpoint
