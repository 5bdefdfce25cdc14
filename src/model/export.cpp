#include "qft/model/export.h"

#include "qft/core/convert.h"
#include "qft/core/error.h"
#include "qft/core/progress.h"
#include "qft/core/workers.h"
#include "qft/io/file.h"
#include "qft/io/model_files.h"
#include "qft/model/adapter_config.h"
#include "qft/model/merge.h"
#include "qft/model/spec.h"
#include "qft/ops/cpu/kernels.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "adapter_merge.h"
#include "sources.h"
#include "tensor_check.h"
#include <nlohmann/json.hpp>

namespace qft::model {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kPieceBytes = 16 << 20;
constexpr std::int64_t kColumns = 2048;  // of a row at once: their sums stay in the first-level cache

/// The factors of one parameter, in fp32: A [experts, ranks, in], B [experts, rows, rank]; experts is 1 but for a stack.
class Factors {
 public:
  Factors(const io::TensorFile& file, const ParamSpec& a, const ParamSpec& b, std::vector<LoraRows> rows, std::int64_t out)
      : a_(read(file, a)), b_(read(file, b)), rows_(std::move(rows)), out_(out), in_(a.shape.back()), rank_(b.shape.back()) {
    for (const LoraRows& part : rows_) b_rows_ += part.rows;
  }

  struct Row {
    const float *b = nullptr, *a = nullptr;  ///< [rank], [rank, in]; nullptr: the row is left alone
  };
  /// Of row `row` of the parameter seen as a matrix with `in` columns.
  Row at(std::int64_t row) const {
    const std::int64_t expert = row / out_, within = row % out_;
    std::int64_t rank0 = expert * rank_ * std::ssize(rows_), b_row = expert * b_rows_;
    for (const LoraRows& part : rows_) {
      if (within >= part.row0 && within < part.row0 + part.rows)
        return {b_.data() + (b_row + within - part.row0) * rank_, a_.data() + rank0 * in_};
      rank0 += rank_;
      b_row += part.rows;
    }
    return {};
  }
  std::int64_t rank() const { return rank_; }
  float scaling() const { return static_cast<float>(rows_.front().scaling); }

 private:
  static std::vector<float> read(const io::TensorFile& file, const ParamSpec& factor) {
    std::vector<float> all;
    for (const FileTensor& part : factor.in_files()) {
      const io::TensorEntry& entry = factor_of(file, part.name);
      std::vector<char> bytes(entry.bytes());
      file.read(entry, 0, bytes.size(), bytes.data());
      all.resize(all.size() + entry.elements());
      to_float(entry.dtype, bytes.data(), entry.elements(), all.data() + all.size() - entry.elements());
    }
    if (!factor.experts_last) return all;
    std::vector<float> experts_first(all.size());
    const auto experts = static_cast<std::size_t>(factor.shape[0]), values = all.size() / experts;
    for (std::size_t i = 0; i < values; ++i)
      for (std::size_t e = 0; e < experts; ++e) experts_first[e * values + i] = all[i * experts + e];
    return experts_first;
  }

  std::vector<float> a_, b_;
  std::vector<LoraRows> rows_;
  std::int64_t out_, in_, rank_, b_rows_ = 0;
};

/// An open adapter whose tensors are those that its configuration asks for.
class Adapter {
 public:
  Adapter(const ModelSpec& spec, const fs::path& dir) : file_(open_adapter(dir)) {
    std::size_t used = 0;
    for (const UnitSpec& unit : spec.units)
      for (const ParamSpec& param : unit.params) {
        for (const FileTensor& part : spec.in_adapter(param)) {
          const io::TensorEntry& entry = factor_of(*file_, part.name);
          require_shape(*file_, entry, part.shape);
          if (param.role == Role::base) saved_[param.name] = {file_.get(), &entry};
          ++used;
        }
        if (param.role == Role::base) continue;
        Pair& pair = pairs_[base_weight_of(param)];
        (param.role == Role::lora_a ? pair.a : pair.b) = &param;
        pair.layer = unit.layer;
      }
    require_all_used(*file_, used);
    for (auto& [name, pair] : pairs_) pair.rows = rows_of(spec, pair, name);
  }

  /// Nothing where the adapter leaves the parameter alone.
  std::optional<Factors> find(const ParamSpec& base) const {
    const auto it = pairs_.find(base.name);
    if (it == pairs_.end()) return {};
    const std::int64_t out = base.shape[base.shape.size() - 2];
    return Factors(*file_, *it->second.a, *it->second.b, it->second.rows, out);
  }
  bool has(const ParamSpec& base) const { return pairs_.contains(base.name); }
  /// A base tensor that the adapter has whole; nullptr: it does not have it.
  const io::TensorLocation* saved(const ParamSpec& base) const {
    const auto it = saved_.find(base.name);
    return it == saved_.end() ? nullptr : &it->second;
  }

 private:
  struct Pair {
    const ParamSpec *a = nullptr, *b = nullptr;
    int layer = 0;
    std::vector<LoraRows> rows;
  };
  /// All rows of a linear; of a stack those of its linears that are wrapped.
  static std::vector<LoraRows> rows_of(const ModelSpec& spec, const Pair& pair, const std::string& base) {
    for (const SubLayerSpec& sublayer : spec.layers[static_cast<std::size_t>(pair.layer)])
      for (const ParamGroup& group : sublayer.params)
        if (group.is_stack() && base.ends_with(group.stack.path + "." + group.stack.name)) return lora_rows(spec.lora, group);
    return {{0, 0, pair.b->shape[0], spec.lora.rank, spec.lora.scaling()}};
  }

  std::unique_ptr<io::TensorFile> file_;
  std::map<std::string, Pair> pairs_;
  std::map<std::string, io::TensorLocation> saved_;
};

/// to[columns] = from[columns] + scaling * b A, with b [rank] one row of B; `from` may be `to` where the types are one. `sums`
/// and `values` have room for a row.
void merge_row(DType from_type, const char* from, DType to_type, char* to, const float* b, const float* a, std::int64_t rank,
               std::int64_t columns, float scaling, std::vector<float>& sums, std::vector<float>& values) {
  const auto kernels = ops::cpu::activation_kernels<float>();
  std::fill(sums.begin(), sums.end(), 0.0F);
  for (std::int64_t first = 0; first < columns; first += kColumns) {
    const std::int64_t n = std::min(kColumns, columns - first);
    for (std::int64_t k = 0; k < rank; ++k) kernels.add_to_float(sums.data() + first, a + k * columns + first, b[k], n);
  }
  const auto count = static_cast<std::size_t>(columns);
  if (from_type == DType::f64 && to_type == DType::f64) {
    std::vector<double> wide(count);
    std::memcpy(wide.data(), from, count * sizeof(double));
    for (std::size_t i = 0; i < count; ++i) wide[i] += static_cast<double>(scaling) * static_cast<double>(sums[i]);
    std::memcpy(to, wide.data(), count * sizeof(double));
    return;
  }
  to_float(from_type, from, count, values.data());
  kernels.add_to_float(values.data(), sums.data(), scaling, columns);
  from_float(to_type, values.data(), count, to);
}

/// Calls f(begin, end) on all cores, so that the parts cover [0, rows).
template <class F>
void for_row_parts(std::int64_t rows, const F& f) {
  const std::int64_t parts = std::clamp<std::int64_t>(std::thread::hardware_concurrency(), 1, rows);
  run_workers(static_cast<int>(parts), [&](int part) { f(rows * part / parts, rows * (part + 1) / parts); });
}

/// Writes one tensor as `type`, in pieces of at most `step` of its bytes: make(begin, n, from, to) fills the piece to write
/// from the n bytes at `begin`. Where the type stays, `to` is `from`.
template <class F>
void stream(const io::TensorLocation& from, DType type, std::uint64_t step, io::ModelWriter& writer, const F& make) {
  const std::uint64_t total = from.entry->bytes(), item = size_of(from.entry->dtype);
  std::vector<char> bytes(std::min(total, step)), converted;
  if (type != from.entry->dtype) converted.resize(bytes.size() / item * size_of(type));
  char* to = converted.empty() ? bytes.data() : converted.data();
  for (std::uint64_t begin = 0; begin < total; begin += step) {
    const std::uint64_t n = std::min(step, total - begin);
    from.file->read(*from.entry, begin, n, bytes.data());
    make(begin, n, bytes.data(), to);
    writer.append(to, n / item * size_of(type));
  }
}

/// to = from merged, for rows [first, first + count) of the parameter seen as a matrix; on all cores.
void merge_rows(DType from_type, const char* from, DType to_type, char* to, std::int64_t columns, std::int64_t first,
                std::int64_t count, const Factors& factors) {
  const auto row_bytes = [&](DType type) { return columns * static_cast<std::int64_t>(size_of(type)); };
  for_row_parts(count, [&](std::int64_t from_row, std::int64_t to_row) {
    std::vector<float> sums(static_cast<std::size_t>(columns)), values(static_cast<std::size_t>(columns));
    for (std::int64_t r = from_row; r < to_row; ++r) {
      const Factors::Row row = factors.at(first + r);
      merge_row(from_type, from + r * row_bytes(from_type), to_type, to + r * row_bytes(to_type), row.b, row.a,
                row.b == nullptr ? 0 : factors.rank(), columns, factors.scaling(), sums, values);
    }
  });
}

/// `first_row`: of the parameter seen as a matrix, that with which the tensor begins.
void write_merged(const io::TensorLocation& from, DType type, std::int64_t columns, std::int64_t first_row,
                  const Factors& factors, io::ModelWriter& writer) {
  const DType dtype = from.entry->dtype;
  const std::uint64_t row_bytes = static_cast<std::uint64_t>(columns) * size_of(dtype);
  const std::uint64_t step = std::max<std::uint64_t>(1, kPieceBytes / row_bytes) * row_bytes;
  stream(from, type, step, writer, [&](std::uint64_t begin, std::uint64_t n, const char* bytes, char* to) {
    merge_rows(dtype, bytes, type, to, columns, first_row + static_cast<std::int64_t>(begin / row_bytes),
               static_cast<std::int64_t>(n / row_bytes), factors);
  });
}

void write_unmerged(const io::TensorLocation& from, DType type, io::ModelWriter& writer) {
  const DType dtype = from.entry->dtype;
  std::vector<float> values;
  stream(from, type, kPieceBytes, writer, [&](std::uint64_t, std::uint64_t n, const char* bytes, char* to) {
    if (dtype == type) return;
    values.resize(n / size_of(dtype));
    to_float(dtype, bytes, values.size(), values.data());
    from_float(type, values.data(), values.size(), to);
  });
}

/// config.json says which type the weights have, under transformers' old or new name of the key, and whether the head is one of
/// its own.
void correct_config(io::Storage& storage, const fs::path& dir, std::optional<DType> type, bool untied) {
  if (!type && !untied) return;
  auto config = nlohmann::ordered_json::parse(io::read_text_file(dir / "config.json"));
  const auto set = [&](nlohmann::ordered_json& object) {
    if (type) object[object.contains("torch_dtype") ? "torch_dtype" : "dtype"] = torch_name(*type);
    if (untied) object["tie_word_embeddings"] = false;
  };
  set(config);
  if (const auto text = config.find("text_config"); text != config.end() && text->is_object()) set(*text);
  io::write_file(storage, dir / "config.json", config.dump(2) + "\n");
}

/// Calls body with every base parameter in the order of the units, and each tensor that the files have for it.
template <class F>
void for_each_tensor(const ModelSpec& spec, const io::ModelFiles& files, const F& body) {
  for (const UnitSpec& unit : spec.units)
    for (const ParamSpec& p : unit.params)
      if (p.role == Role::base)
        for (const Source& source : sources_of(p, files)) body(p, source);
}

/// Tensors that are none of the decoder's, by name.
std::vector<const io::TensorEntry*> others(const ModelSpec& spec, const io::ModelFiles& files) {
  std::vector<const io::TensorEntry*> entries;
  for (const std::string& name : files.names())
    if (spec.config.is_other(name)) entries.push_back(files.at(name).entry);
  return entries;
}

/// All of them, as `type`, or else with the element type that each has in the files.
std::vector<io::TensorSpec> tensors_of(const ModelSpec& spec, const io::ModelFiles& files, std::optional<DType> type) {
  std::vector<io::TensorSpec> tensors;
  for_each_tensor(spec, files, [&](const ParamSpec& p, const Source& source) {
    const io::TensorEntry& entry = *source.at.entry;
    const bool parted = spec.untied && p.path == kLmHead;  // its source is the embeddings' tensor
    tensors.push_back({parted ? p.name : entry.name, type.value_or(entry.dtype), entry.shape});
  });
  for (const io::TensorEntry* entry : others(spec, files)) tensors.push_back({entry->name, entry->dtype, entry->shape});
  return tensors;
}

}  // namespace

struct RowMerger::Impl {
  Impl(const ModelConfig& config, const fs::path& dir)
      : spec(ModelSpec::build(config, Finetuning::lora, read_adapter_config(dir))), adapter(spec, dir) {}

  const ModelSpec spec;
  const Adapter adapter;
  std::mutex mutex;
  std::string current;  ///< whose factors they are
  std::shared_ptr<const Factors> factors;
};

RowMerger::RowMerger(const ModelConfig& config, const fs::path& adapter) : impl_(std::make_unique<Impl>(config, adapter)) {}
RowMerger::~RowMerger() = default;

const ModelSpec& RowMerger::spec() const {
  return impl_->spec;
}

bool RowMerger::changes(const ParamSpec& base) const {
  return impl_->adapter.has(base);
}

const io::TensorLocation* RowMerger::saved(const ParamSpec& base) const {
  return impl_->adapter.saved(base);
}

void RowMerger::merge(const ParamSpec& base, DType type, std::int64_t first, std::int64_t count, char* rows) {
  std::shared_ptr<const Factors> factors;
  {
    const std::lock_guard lock(impl_->mutex);
    if (std::exchange(impl_->current, base.name) != base.name)
      impl_->factors = std::make_shared<const Factors>(*impl_->adapter.find(base));
    factors = impl_->factors;
  }
  merge_rows(type, rows, type, rows, base.shape.back(), first, count, *factors);
}

ExportReport export_model(io::Storage& storage, const ExportRequest& request) {
  io::require_free(request.target, "export directory");
  const LoraConfig lora = request.adapter.empty() ? LoraConfig{} : read_adapter_config(request.adapter);
  const ModelSpec spec =
      ModelSpec::build(ModelConfig::load(request.base), lora.enabled() ? Finetuning::lora : Finetuning::full, lora);
  io::ModelFiles files = io::ModelFiles::open(request.base);
  merge_adapters(files, spec.config, request.earlier);
  refuse_unexpected(spec, files);
  std::optional<Adapter> adapter;
  if (lora.enabled()) adapter.emplace(spec, request.adapter);

  io::CommitDir commit(storage, request.target);
  std::vector<io::TensorSpec> tensors = tensors_of(spec, files, request.dtype);
  ExportReport report;
  report.tensors = static_cast<std::int64_t>(tensors.size());
  io::ModelWriter writer(storage, commit.temp(), std::move(tensors), request.max_shard_bytes);
  Progress progress("export", report.tensors);
  std::int64_t done = 0;
  const ParamSpec* current = nullptr;
  std::optional<Factors> factors;
  for_each_tensor(spec, files, [&](const ParamSpec& p, const Source& source) {
    if (std::exchange(current, &p) != &p) factors = adapter ? adapter->find(p) : std::nullopt;
    const io::TensorEntry& entry = *source.at.entry;
    report.bytes += entry.bytes();
    const DType type = request.dtype.value_or(entry.dtype);
    report.converted += type != entry.dtype ? 1 : 0;
    if (const io::TensorLocation* saved = adapter ? adapter->saved(p) : nullptr) {
      write_unmerged(*saved, type, writer);
      ++report.merged;
    } else if (factors) {
      const std::int64_t columns = p.shape.back();
      write_merged(source.at, type, columns, source.begin / columns, *factors, writer);
      ++report.merged;
    } else {
      write_unmerged(source.at, type, writer);
    }
    progress.update(++done);
  });
  for (const io::TensorEntry* entry : others(spec, files)) {
    write_unmerged(files.at(entry->name), entry->dtype, writer);
    report.bytes += entry->bytes();
    ++report.kept;
    progress.update(++done);
  }
  writer.finish();
  io::copy_existing(storage, request.base, commit.temp(), io::kModelConfigFiles);
  correct_config(storage, commit.temp(), request.dtype, spec.untied);
  io::copy_existing(storage, request.tokenizer, commit.temp(), io::kTokenizerFiles);
  commit.commit();
  return report;
}

}  // namespace qft::model
