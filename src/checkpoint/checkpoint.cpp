#include "qft/checkpoint/checkpoint.h"

#include "qft/checkpoint/branch.h"
#include "qft/checkpoint/verify.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/core/member.h"

#include <algorithm>
#include <charconv>

#include "tensor_source.h"
#include <fmt/ranges.h>

namespace qft::checkpoint {

namespace fs = std::filesystem;
constexpr std::string_view kDirectoryPrefix = "checkpoint-";

Checkpoint Checkpoint::open(const fs::path& dir) {
  Checkpoint checkpoint;
  checkpoint.dir_ = dir;
  checkpoint.manifest_ = Manifest::read(dir);
  checkpoint.files_ = std::make_unique<Files>();
  return checkpoint;
}

const TensorRecord& Checkpoint::require_tensor(std::string_view name) const {
  const TensorRecord* tensor = manifest_.find(name);
  require(tensor != nullptr,
          "checkpoint '{}' has no tensor '{}': was it written with another finetuning_type, lora_target or optim?", dir_.string(),
          name);
  return *tensor;
}

const io::SafetensorsFile& Checkpoint::file(const std::string& name) const {
  const std::lock_guard guard(files_->mutex);
  auto it = files_->open.find(name);
  if (it == files_->open.end()) it = files_->open.emplace(name, io::SafetensorsFile::open(member_of(dir_, name))).first;
  return it->second;
}

void Checkpoint::read_tensor_range(std::string_view name, std::uint64_t begin, std::uint64_t end, void* dst) const {
  const TensorRecord& tensor = require_tensor(name);
  require(begin <= end && end <= tensor.elements(), "elements [{}, {}) of tensor '{}' requested, '{}' has {}", begin, end, name,
          dir_.string(), tensor.elements());
  copy(tensor, {Box::whole(tensor.shape), begin, end}, dst);
}

void Checkpoint::copy(const TensorRecord& tensor, const BoxRange& wanted, void* dst) const {
  const std::size_t width = size_of(tensor.dtype);
  std::uint64_t copied = 0;
  const RangeRecord* open = nullptr;  // looked up once for all its runs: a box of columns has one run per row
  const io::SafetensorsFile* source = nullptr;
  const io::TensorEntry* entry = nullptr;
  for (const BoxRecord& record : tensor.boxes)
    for_each_common_run(wanted, {record.box, 0, record.box.elements()}, [&](const CommonRun& run) {
      auto range = std::upper_bound(record.ranges.begin(), record.ranges.end(), run.b,
                                    [](std::uint64_t element, const RangeRecord& r) { return element < r.end; });
      for (std::uint64_t done = 0; done < run.count; ++range) {
        if (open != &*range) {
          open = &*range;
          source = &file(range->file);
          entry = &require_entry(*source, tensor, *range);
        }
        const std::uint64_t first = run.b + done, count = std::min(run.count - done, range->end - first);
        source->read(*entry, (first - range->begin) * width, count * width, static_cast<char*>(dst) + (run.a + done) * width);
        done += count;
      }
      copied += run.count;
    });
  QFT_ASSERT(copied == wanted.end - wanted.begin, "{} of {} elements of '{}' were read", copied, wanted.end - wanted.begin,
             tensor.name);
}

void Checkpoint::read(const HostSlice& target) const {
  const TensorRecord& tensor = require_tensor(target.name);
  require(tensor.dtype == target.dtype && tensor.shape == target.shape,
          "tensor '{}' is {} [{}] in checkpoint '{}', but {} [{}] in this run: resume with the configuration that wrote it",
          target.name, safetensors_name(tensor.dtype), fmt::join(tensor.shape, ", "), dir_.string(),
          safetensors_name(target.dtype), fmt::join(target.shape, ", "));
  require_inside(target);
  copy(tensor, {target.box, target.begin, target.end}, target.data);
}

std::string directory_name(std::int64_t step) {
  return fmt::format("{}{}", kDirectoryPrefix, step);
}

std::optional<std::int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kDirectoryPrefix)) return std::nullopt;
  name.remove_prefix(kDirectoryPrefix.size());
  std::int64_t step = 0;
  const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), step);
  const bool number = code == std::errc() && end == name.data() + name.size() && step >= 0;
  // qft never writes names such as "007" and "+7".
  if (!number || std::to_string(step) != name) return std::nullopt;
  return step;
}

std::vector<Candidate> list_checkpoints(const fs::path& output_dir) {
  std::vector<Candidate> found;
  if (!fs::is_directory(output_dir)) return found;
  std::error_code code;
  for (fs::directory_iterator it(output_dir, code), end; !code && it != end; it.increment(code)) {
    const auto step = step_of(it->path().filename().string());
    if (step && fs::is_directory(it->path())) found.push_back({*step, it->path()});
  }
  require(!code, "cannot list directory '{}': {}", output_dir.string(), code.message());
  std::sort(found.begin(), found.end(), [](const Candidate& a, const Candidate& b) { return a.step < b.step; });
  return found;
}

void require_checkpoint(const fs::path& dir) {
  if (fs::exists(dir / kManifestFile)) return;
  if (!fs::is_directory(dir))
    fail_config("checkpoint '{}' {}: give a checkpoint-<step> directory", dir.string(),
                fs::exists(dir) ? "is not a directory" : "does not exist");
  const std::vector<Candidate> inside = list_checkpoints(dir);
  if (inside.empty())
    fail_config("'{}' has no {}: it is not a checkpoint of qft, or an unfinished one", dir.string(), kManifestFile);
  fail_config("'{}' is not a checkpoint, but contains some: give one, such as '{}'", dir.string(), inside.back().dir.string());
}

void log_skipped(const fs::path& dir, const VerifyReport& report) {
  for (const std::string& error : report.errors) log::warn("'{}' is not used: {}", dir.string(), error);
}

std::optional<fs::path> find_latest_verified(const fs::path& output_dir) {
  for (const fs::path& dir : resume_order(output_dir)) {
    const VerifyReport report = verify_share(dir, 0, 1);
    if (report.ok()) return dir;
    log_skipped(dir, report);
  }
  return std::nullopt;
}

}  // namespace qft::checkpoint
