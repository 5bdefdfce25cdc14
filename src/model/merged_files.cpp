#include "qft/core/convert.h"
#include "qft/core/error.h"
#include "qft/model/adapter_config.h"
#include "qft/model/classifier.h"
#include "qft/model/merge.h"
#include "qft/model/pissa.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "adapter_merge.h"
#include "tensor_check.h"

namespace qft::model {
namespace {

constexpr std::uint64_t kChunkBytes = 8 << 20;

/// An adapter with its change of one parameter at a time.
class RowMerger {
 public:
  /// Throws Error if the adapter does not match a model with this configuration.
  RowMerger(const ModelConfig& config, const AdapterConfig& own, std::unique_ptr<io::TensorFile> adapter)
      : spec_(ModelSpec::build(config, Finetuning::adapter, own, {}, head_of(config, own))),
        adapter_(spec_, std::move(adapter)) {}

  const ModelSpec& spec() const { return spec_; }
  const Adapter& adapter() const { return adapter_; }
  /// Changes rows [first, first + count), of `type`, of a wrapped parameter viewed as a matrix, in place. Thread-safe.
  void merge(const ParamSpec& base, DType type, std::int64_t first, std::int64_t count, char* rows) {
    std::shared_ptr<const WeightChange> change;
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(current_, base.name) != base.name) change_ = adapter_.find(base);
      change = change_;
    }
    change->apply(type, rows, type, rows, base.shape.back(), first, count);
  }

 private:
  const ModelSpec spec_;
  const Adapter adapter_;
  std::mutex mutex_;
  std::string current_;  ///< name of the parameter that change_ belongs to
  std::shared_ptr<const WeightChange> change_;
};

/// A file's tensor that an adapter changes: its parameter, and its first row in the parameter.
struct Change {
  const ParamSpec* param = nullptr;
  std::int64_t first_row = 0;
};

/// A file of base weights with one adapter merged.
class MergedFile : public io::TensorFile {
 public:
  MergedFile(std::unique_ptr<io::TensorFile> base, std::shared_ptr<RowMerger> merger,
             std::shared_ptr<const std::map<std::string, Change>> changes)
      : TensorFile(io::File::open_read(base->path())),
        base_(std::move(base)),
        merger_(std::move(merger)),
        changes_(std::move(changes)) {
    metadata_ = base_->metadata();
    set_entries(base_->entries());
  }

 protected:
  void read_checked(const io::TensorEntry& entry, std::uint64_t first_byte, std::uint64_t bytes, void* dst) const override {
    const io::TensorEntry& own = base_->at(entry.name);
    const auto it = changes_->find(entry.name);
    if (it == changes_->end()) return base_->read(own, first_byte, bytes, dst);
    if (const io::TensorLocation* replacement = merger_->adapter().replacement(*it->second.param))
      return read_replacement(*replacement, entry.dtype, first_byte, bytes, static_cast<char*>(dst));
    read_rows(own, it->second, first_byte, bytes, static_cast<char*>(dst));
  }

 private:
  /// Merges the whole rows around the range, and copies the range.
  void read_rows(const io::TensorEntry& entry, const Change& change, std::uint64_t first_byte, std::uint64_t bytes,
                 char* dst) const {
    const std::uint64_t row_bytes = static_cast<std::uint64_t>(entry.shape.back()) * size_of(entry.dtype);
    const std::uint64_t piece = std::max<std::uint64_t>(1, kChunkBytes / row_bytes), end = first_byte + bytes;
    std::vector<char> rows;
    for (std::uint64_t row = first_byte / row_bytes; row * row_bytes < end; row += piece) {
      const std::uint64_t count = std::min(piece, (end + row_bytes - 1) / row_bytes - row);
      rows.resize(count * row_bytes);
      base_->read(entry, row * row_bytes, rows.size(), rows.data());
      merger_->merge(*change.param, entry.dtype, change.first_row + static_cast<std::int64_t>(row),
                     static_cast<std::int64_t>(count), rows.data());
      const std::uint64_t from = std::max(first_byte, row * row_bytes), to = std::min(end, (row + count) * row_bytes);
      std::memcpy(dst + (from - first_byte), rows.data() + (from - row * row_bytes), to - from);
    }
  }

  static void read_replacement(const io::TensorLocation& replacement, DType type, std::uint64_t first_byte, std::uint64_t bytes,
                               char* dst) {
    const std::uint64_t item = size_of(type), count = bytes / item, theirs = size_of(replacement.entry->dtype);
    QFT_ASSERT(first_byte % item == 0 && bytes % item == 0, "'{}': the read does not start and end at element boundaries",
               replacement.entry->name);
    std::vector<char> raw(count * theirs);
    replacement.file->read(*replacement.entry, first_byte / item * theirs, raw.size(), raw.data());
    if (type == replacement.entry->dtype) return void(std::memcpy(dst, raw.data(), raw.size()));
    std::vector<float> values(count);
    to_float(replacement.entry->dtype, raw.data(), count, values.data());
    from_float(type, values.data(), count, dst);
  }

  std::unique_ptr<io::TensorFile> base_;
  std::shared_ptr<RowMerger> merger_;
  std::shared_ptr<const std::map<std::string, Change>> changes_;
};

/// Returns the changes by the names of the files' tensors.
std::map<std::string, Change> changes_of(const RowMerger& merger, const io::ModelFiles& files) {
  std::map<std::string, Change> changes;
  for (const UnitSpec& unit : merger.spec().units)
    for (const ParamSpec& p : unit.params)
      if (p.role == Role::base && merger.adapter().changes(p))
        for (const Source& source : sources_of(p, files)) changes[source.at.entry->name] = {&p, source.begin / p.shape.back()};
  return changes;
}

void merge(io::ModelFiles& files, const std::shared_ptr<RowMerger>& merger) {
  const auto changes = std::make_shared<const std::map<std::string, Change>>(changes_of(*merger, files));
  files.wrap([&](std::unique_ptr<io::TensorFile> file) -> std::unique_ptr<io::TensorFile> {
    return std::make_unique<MergedFile>(std::move(file), merger, changes);
  });
}

}  // namespace

void merge_adapters(io::ModelFiles& files, const ModelConfig& config, const std::vector<std::filesystem::path>& adapters) {
  if (config.stored && !adapters.empty())
    fail_config(
        "adapter '{}' cannot be merged into the weights of '{}', which are quantised in its files ({}): merge it first (qft "
        "export writes a 16-bit model), and start from the merged model",
        adapters.front().string(), files.dir().string(), describe(*config.stored));
  for (const std::filesystem::path& dir : adapters) {
    const auto merger = std::make_shared<RowMerger>(config, read_adapter_config(dir), open_adapter(dir));
    if (merger->spec().untied)
      fail_config(
          "adapter '{}' unties head and embeddings, which the model '{}' ties: merge it first (qft export), and start from the "
          "merged model",
          dir.string(), files.dir().string());
    merge(files, merger);
  }
}

void subtract_initial_factors(io::ModelFiles& files, const ModelSpec& spec, std::unique_ptr<io::TensorFile> initial) {
  LoraConfig minus = spec.adapter.lora;
  minus.alpha = -minus.alpha;
  for (auto& [key, alpha] : minus.alphas) alpha = -alpha;
  minus.dora = false;
  minus.modules_to_save.clear();
  minus.labels = 0;
  merge(files, std::make_shared<RowMerger>(spec.config, minus, std::move(initial)));
}

}  // namespace qft::model
