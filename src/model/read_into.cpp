#include "read_into.h"

#include "qft/core/error.h"
#include "qft/device/scalar_type.h"

#include <cstring>
#include <vector>

#include <ATen/ops/empty.h>

namespace qft::model {
namespace {

constexpr std::uint64_t kChunkBytes = 8 << 20;
constexpr std::uint64_t kGapBytes = 64 << 10;  ///< reading so much takes no longer than another call

/// Reads runs of a file's tensor. Reads rows that a rank has some columns of together, with what lies between these columns.
class RunReader {
 public:
  RunReader(const Source& source, const Shard& dst)
      : source_(source),
        values_(dst.values),
        options_(at::TensorOptions().dtype(device::scalar_type_of(source.at.entry->dtype))),
        item_(size_of(source.at.entry->dtype)),
        direct_(values_.is_cpu() && values_.scalar_type() == c10::typeMetaToScalarType(options_.dtype())) {}

  /// Call in ascending order of both elements, box by box.
  void add(CommonRun run) {
    const std::uint64_t most = kChunkBytes / item_;
    for (; !direct_ && run.count > most; run = {run.a + most, run.b + most, run.count - most}) add({run.a, run.b, most});
    if (!runs_.empty()) {
      const CommonRun& last = runs_.back();
      const std::uint64_t end = last.b + last.count;
      if (run.a != last.a + last.count || run.b < end || (run.b - end) * item_ > kGapBytes ||
          run.b + run.count - runs_.front().b > most)
        flush();
    }
    runs_.push_back(run);
    total_ += static_cast<std::int64_t>(run.count);
  }

  /// Returns the elements read.
  std::int64_t finish() {
    flush();
    return total_;
  }

 private:
  void flush() {
    if (runs_.empty()) return;
    const std::uint64_t a = runs_.front().a, b = runs_.front().b, count = runs_.back().a + runs_.back().count - a;
    const auto first = static_cast<std::int64_t>(a), n = static_cast<std::int64_t>(count);
    if (!direct_ && (!staging_.defined() || staging_.numel() < n)) staging_ = at::empty({n}, options_);
    char* const to = direct_ ? static_cast<char*>(values_.data_ptr()) + a * item_ : static_cast<char*>(staging_.data_ptr());
    if (runs_.size() == 1) {
      read(b, count, to);
    } else {
      between_.resize((runs_.back().b + runs_.back().count - b) * item_);
      read(b, between_.size() / item_, between_.data());
      for (const CommonRun& run : runs_)
        std::memcpy(to + (run.a - a) * item_, between_.data() + (run.b - b) * item_, run.count * item_);
    }
    if (!direct_) values_.narrow(0, first, n).copy_(staging_.narrow(0, 0, n));
    runs_.clear();
  }

  void read(std::uint64_t first, std::uint64_t count, char* to) const {
    source_.at.file->read(*source_.at.entry, first * item_, count * item_, to);
  }

  const Source& source_;
  const at::Tensor& values_;
  at::TensorOptions options_;
  std::uint64_t item_;
  bool direct_;  ///< the file's bytes are the values'
  std::vector<CommonRun> runs_;
  std::vector<char> between_;
  at::Tensor staging_;
  std::int64_t total_ = 0;
};

}  // namespace

void for_each_source_run(const Source& source, const ParamSpec& param, const Shard& dst,
                         const std::function<void(const CommonRun&)>& visit) {
  const auto first = static_cast<std::uint64_t>(source.begin);
  for_each_common_run(BoxesRange{param.boxes, static_cast<std::uint64_t>(dst.begin), static_cast<std::uint64_t>(dst.end())},
                      {Box::whole(param.shape), first, first + source.at.entry->elements()}, visit);
}

std::int64_t read_into(const Source& source, const ParamSpec& param, const Shard& dst) {
  RunReader reader(source, dst);
  for_each_source_run(source, param, dst, [&](const CommonRun& run) { reader.add(run); });
  const std::int64_t total = reader.finish();
  QFT_ASSERT(total == dst.values.numel() || !param.parts.empty(), "'{}': {} of {} elements from {} on lie in its boxes",
             param.name, total, dst.values.numel(), dst.begin);
  return total * static_cast<std::int64_t>(size_of(source.at.entry->dtype));
}

}  // namespace qft::model
