#include "qft/model/export.h"

#include "qft/core/convert.h"
#include "qft/core/error.h"
#include "qft/core/progress.h"
#include "qft/core/workers.h"
#include "qft/io/file.h"
#include "qft/io/model_files.h"
#include "qft/model/adapter_config.h"
#include "qft/model/spec.h"
#include "qft/ops/cpu/kernels.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tensor_check.h"
#include <nlohmann/json.hpp>

namespace qft::model {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kPieceBytes = 16 << 20;
constexpr std::int64_t kColumns = 2048;  // of a row at once: their sums stay in the first-level cache

/// The factors of one module: B [out, rank], A [rank, in].
struct Factors {
  const ParamSpec *a = nullptr, *b = nullptr;
};

/// An open adapter whose tensors are those that its configuration asks for.
class Adapter {
 public:
  Adapter(const ModelSpec& spec, const fs::path& dir)
      : file_(open_adapter(dir)), rank_(spec.lora.rank), scaling_(static_cast<float>(spec.lora.scaling())) {
    std::size_t used = 0;
    for (const UnitSpec& unit : spec.units)
      for (const ParamSpec& param : unit.params) {
        if (param.role == Role::base) continue;
        require_shape(*file_, file_->at(param.name), param.shape);
        Factors& factors = factors_[base_weight_of(param)];
        (param.role == Role::lora_a ? factors.a : factors.b) = &param;
        ++used;
      }
    require_all_used(*file_, used);
  }

  /// nullptr where the adapter leaves the tensor alone.
  const Factors* find(const ParamSpec& base) const {
    const auto it = factors_.find(base.name);
    return it == factors_.end() ? nullptr : &it->second;
  }
  std::vector<float> read(const ParamSpec& factor) const {
    const io::TensorEntry& entry = file_->at(factor.name);
    std::vector<char> bytes(entry.bytes());
    file_->read(entry, 0, bytes.size(), bytes.data());
    std::vector<float> values(entry.elements());
    to_float(entry.dtype, bytes.data(), values.size(), values.data());
    return values;
  }
  std::int64_t rank() const { return rank_; }
  float scaling() const { return scaling_; }

 private:
  std::unique_ptr<io::TensorFile> file_;
  std::map<std::string, Factors> factors_;
  std::int64_t rank_;
  float scaling_;
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

void write_merged(const io::TensorLocation& from, DType type, const ParamSpec& param, const Adapter& adapter,
                  const Factors& factors, io::ModelWriter& writer) {
  const std::vector<float> a = adapter.read(*factors.a), b = adapter.read(*factors.b);
  const std::int64_t columns = param.shape[1], rank = adapter.rank();
  const DType dtype = from.entry->dtype;
  const std::uint64_t row_bytes = static_cast<std::uint64_t>(columns) * size_of(dtype);
  const std::uint64_t row_bytes_to = static_cast<std::uint64_t>(columns) * size_of(type);
  const std::uint64_t step = std::max<std::uint64_t>(1, kPieceBytes / row_bytes) * row_bytes;
  stream(from, type, step, writer, [&](std::uint64_t begin, std::uint64_t n, const char* bytes, char* to) {
    const auto first = static_cast<std::int64_t>(begin / row_bytes);
    for_row_parts(static_cast<std::int64_t>(n / row_bytes), [&](std::int64_t from_row, std::int64_t to_row) {
      std::vector<float> sums(static_cast<std::size_t>(columns)), values(static_cast<std::size_t>(columns));
      for (std::int64_t r = from_row; r < to_row; ++r)
        merge_row(dtype, bytes + static_cast<std::uint64_t>(r) * row_bytes, type,
                  to + static_cast<std::uint64_t>(r) * row_bytes_to, b.data() + (first + r) * rank, a.data(), rank, columns,
                  adapter.scaling(), sums, values);
    });
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

/// config.json says which type the weights have, under transformers' old or new name of the key.
void set_config_type(io::Storage& storage, const fs::path& dir, DType type) {
  auto config = nlohmann::ordered_json::parse(io::read_text_file(dir / "config.json"));
  config[config.contains("torch_dtype") ? "torch_dtype" : "dtype"] = torch_name(type);
  io::write_file(storage, dir / "config.json", config.dump(2) + "\n");
}

/// Every base tensor in the order of the units, as `type`, or else with the element type that it has in the files.
std::vector<io::TensorSpec> tensors_of(const ModelSpec& spec, const io::ModelFiles& files, std::optional<DType> type) {
  std::vector<io::TensorSpec> tensors;
  for (const UnitSpec& unit : spec.units)
    for (const ParamSpec& p : unit.params) {
      if (p.role != Role::base) continue;
      const io::TensorLocation& where = files.at(p.name);
      require_shape(*where.file, *where.entry, p.shape);
      tensors.push_back({p.name, type.value_or(where.entry->dtype), p.shape});
    }
  return tensors;
}

}  // namespace

ExportReport export_model(io::Storage& storage, const ExportRequest& request) {
  io::require_free(request.target, "export directory");
  const LoraConfig lora = request.adapter.empty() ? LoraConfig{} : read_adapter_config(request.adapter);
  const ModelSpec spec =
      ModelSpec::build(ModelConfig::load(request.base), lora.enabled() ? Finetuning::lora : Finetuning::full, lora);
  const io::ModelFiles files = io::ModelFiles::open(request.base);
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
  for (const UnitSpec& unit : spec.units)
    for (const ParamSpec& p : unit.params) {
      if (p.role != Role::base) continue;
      const io::TensorLocation& where = files.at(p.name);
      report.bytes += where.entry->bytes();
      const DType type = request.dtype.value_or(where.entry->dtype);
      report.converted += type != where.entry->dtype ? 1 : 0;
      if (const Factors* factors = adapter ? adapter->find(p) : nullptr) {
        write_merged(where, type, p, *adapter, *factors, writer);
        ++report.merged;
      } else {
        write_unmerged(where, type, writer);
      }
      progress.update(++done);
    }
  writer.finish();
  io::copy_existing(storage, request.base, commit.temp(), io::kModelConfigFiles);
  if (request.dtype) set_config_type(storage, commit.temp(), *request.dtype);
  io::copy_existing(storage, request.tokenizer, commit.temp(), io::kTokenizerFiles);
  commit.commit();
  return report;
}

}  // namespace qft::model
