#include "qft/train/save_model.h"

#include <exception>
#include <fstream>
#include <functional>
#include <map>
#include <memory>

#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>

#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/core/progress.h"
#include "qft/io/file.h"
#include "qft/io/model_files.h"

namespace qft::train {
namespace {

namespace fs = std::filesystem;
using checkpoint::FileRecord;

constexpr const char* kTokenizerFiles[] = {"tokenizer.json",    "tokenizer_config.json", "special_tokens_map.json",
                                           "added_tokens.json", "vocab.json",            "merges.txt",
                                           "chat_template.jinja"};
constexpr const char* kModelConfigFiles[] = {"config.json", "generation_config.json"};
constexpr std::uint64_t kDefaultShardBytes = 5'000'000'000;

FileRecord write_text(io::Storage& storage, const fs::path& dir, const std::string& name, const std::string& text) {
  const auto file = storage.create(dir / name);
  file->append(text.data(), text.size());
  file->sync();
  file->close();
  return {name, text.size(), hash_hex(text)};
}

/// Those of `names` that `from` has.
template <std::size_t N>
void copy_existing(io::Storage& storage, const fs::path& from, const fs::path& to, const char* const (&names)[N],
                   std::vector<FileRecord>& written) {
  for (const char* name : names)
    if (fs::exists(from / name)) written.push_back(write_text(storage, to, name, io::read_text_file(from / name)));
}

/// A host copy in the element type that files have, contiguous.
at::Tensor host_copy(const at::Tensor& t, at::ScalarType type) { return t.to(at::kCPU, type).contiguous(); }

/// Host copies of all factors, by name; empty but on `keep`. Collective.
std::map<std::string, std::pair<std::vector<std::int64_t>, at::Tensor>> gather_adapter(parallel::Instance& instance,
                                                                                       at::ScalarType type, bool keep) {
  std::map<std::string, std::pair<std::vector<std::int64_t>, at::Tensor>> factors;
  for (int u = 0; u < instance.spec().num_units(); ++u) {
    const auto& unit = instance.spec().units[static_cast<std::size_t>(u)];
    if (unit.trainable_numel == 0) continue;
    const at::Tensor whole = instance.whole_master(u);
    if (!keep) continue;
    for (const auto& p : unit.params)
      if (p.role != model::Role::base) factors[p.name] = {p.shape, host_copy(whole.narrow(0, p.offset, p.numel), type).clone()};
  }
  return factors;
}

std::vector<FileRecord> write_adapter(const config::RunConfig& config, parallel::Instance& instance, io::Storage& storage,
                                      const fs::path& dir, bool writes) {
  const at::ScalarType master = instance.precision().master;
  const at::ScalarType type = master == at::kDouble ? at::kFloat : master;  // PEFT expects no fp64
  const auto factors = gather_adapter(instance, type, writes);
  if (!writes) return {};
  std::vector<io::TensorSpec> specs;
  for (const auto& [name, factor] : factors) specs.push_back({name, model::dtype_of(type), factor.first});
  const std::string file = "adapter_model.safetensors";
  io::SafetensorsWriter writer(storage, dir / file, specs);
  for (const auto& [name, factor] : factors) writer.append(factor.second.data_ptr(), factor.second.nbytes());
  writer.finish();
  return {{file, writer.file_bytes(), writer.checksum()},
          write_text(storage, dir, "adapter_config.json",
                     model::adapter_config_json(instance.spec().lora, config.model.model_name_or_path))};
}

/// Every base tensor in the order of the units, as (spec, element type).
std::vector<io::TensorSpec> base_tensors(const model::ModelSpec& spec, DType dtype) {
  std::vector<io::TensorSpec> specs;
  for (const auto& unit : spec.units)
    for (const auto& p : unit.params)
      if (p.role == model::Role::base) specs.push_back({p.name, dtype, p.shape});
  return specs;
}

std::vector<FileRecord> records_of(const io::ModelWriter& writer, const fs::path& dir) {
  std::vector<FileRecord> written;
  for (const auto& shard : writer.shards())
    if (shard.mine) written.push_back({shard.file, fs::file_size(dir / shard.file), shard.checksum});
  if (writer.shards().size() > 1 && writer.shards().front().mine)
    written.push_back({io::kIndexFile, fs::file_size(dir / io::kIndexFile), hash_file(dir / io::kIndexFile)});
  return written;
}

/// A unit at a time is whole on every rank; the writers' ranks write their shards.
std::vector<FileRecord> write_base_model(parallel::Instance& instance, io::Storage& storage, const fs::path& dir,
                                         const Writers& who) {
  const at::ScalarType type = instance.precision().compute;
  std::unique_ptr<io::ModelWriter> writer;
  std::exception_ptr failure;
  const auto attempt = [&](const std::function<void()>& body) {
    if (failure || who.rank >= who.writers) return;
    try {
      body();
    } catch (...) {
      failure = std::current_exception();  // the others count on this rank in the gathers to come
    }
  };
  attempt([&] {
    writer = std::make_unique<io::ModelWriter>(storage, dir, base_tensors(instance.spec(), model::dtype_of(type)),
                                               kDefaultShardBytes, io::Metadata{{"format", "pt"}}, who.rank, who.writers);
  });
  for (int u = 0; u < instance.spec().num_units(); ++u) {
    const auto& buffers = instance.store().acquire(u);
    for (const auto& p : instance.spec().units[static_cast<std::size_t>(u)].params)
      if (p.role == model::Role::base) attempt([&] {
        const at::Tensor host = host_copy(model::param_view(p, buffers.frozen, buffers.trainable), type);
        writer->append(host.data_ptr(), host.nbytes());
      });
    instance.store().release(u);
  }
  attempt([&] { writer->finish(); });
  if (failure) std::rethrow_exception(failure);
  return writer ? records_of(*writer, dir) : std::vector<FileRecord>{};
}

/// scaling * B A of a module's adapter, fp32 [out, in]; undefined where the module has none.
class AdapterDeltas {
 public:
  AdapterDeltas(const model::ModelSpec& spec, const fs::path& adapter) : spec_(spec) {
    if (!spec.lora.enabled()) return;
    model::load_adapter(spec, adapter, [&](int, const model::ParamSpec& p) {
      return model::ParamSlice{factors_[p.name] = at::empty({p.numel}, at::kFloat), 0};
    });
  }
  at::Tensor of(const model::ParamSpec& base) const {
    const std::string stem = "base_model.model." + base.name.substr(0, base.name.rfind(".weight"));
    const auto a = factors_.find(stem + ".lora_A.weight"), b = factors_.find(stem + ".lora_B.weight");
    if (!base.name.ends_with(".weight") || a == factors_.end() || b == factors_.end()) return {};
    const std::int64_t rank = spec_.lora.rank;
    return at::matmul(b->second.view({base.shape[0], rank}), a->second.view({rank, base.shape[1]})).mul_(spec_.lora.scaling());
  }

 private:
  const model::ModelSpec& spec_;
  std::map<std::string, at::Tensor> factors_;
};

void require_empty(const fs::path& dir) {
  if (fs::exists(dir) && (!fs::is_directory(dir) || !fs::is_empty(dir)))
    fail_config("export_dir '{}' exists and is not empty: choose another or remove it", dir.string());
}

}  // namespace

std::vector<FileRecord> save_model(const config::RunConfig& config, parallel::Instance& instance, io::Storage& storage,
                                   const fs::path& dir, const Writers& who) {
  const bool lora = instance.spec().lora.enabled();
  std::vector<FileRecord> written = lora ? write_adapter(config, instance, storage, dir, who.rank == 0)
                                         : write_base_model(instance, storage, dir, who);
  if (who.rank != 0) return written;
  if (!lora) copy_existing(storage, config.model.model_name_or_path, dir, kModelConfigFiles, written);
  copy_existing(storage, config.tokenizer_path(), dir, kTokenizerFiles, written);
  return written;
}

void export_model(const config::RunConfig& config, io::Storage& storage) {
  const fs::path target = config.exporting.export_dir, base = config.model.model_name_or_path;
  if (target.empty()) fail_config("qft export needs export_dir: the directory to write the merged model to");
  require_empty(target);
  const model::LoraConfig lora = parallel::lora_of(config, parallel::Use::inference);
  const auto spec = model::ModelSpec::build(model::ModelConfig::load(base),
                                            lora.enabled() ? model::Finetuning::lora : model::Finetuning::full, lora);
  const auto files = io::ModelFiles::open(base);
  const AdapterDeltas deltas(spec, parallel::adapter_dir(config));
  const DType dtype = files.at(spec.units[0].params[0].name).entry->dtype;
  io::CommitDir commit(storage, target);
  io::ModelWriter writer(storage, commit.temp(), base_tensors(spec, dtype),
                         static_cast<std::uint64_t>(config.exporting.export_size) * 1'000'000'000);
  Progress progress("export", static_cast<std::int64_t>(files.size()));
  std::int64_t done = 0;
  for (const auto& unit : spec.units)
    for (const auto& p : unit.params) {
      if (p.role != model::Role::base) continue;
      const auto& where = files.at(p.name);
      at::Tensor value = at::empty({p.numel}, model::scalar_type_of(dtype));
      model::read_into(*where.file, *where.entry, p.shape, {value, 0});
      if (const at::Tensor delta = deltas.of(p); delta.defined())
        value = value.to(at::kFloat).add_(delta.view({-1})).to(value.scalar_type());
      writer.append(value.data_ptr(), value.nbytes());
      progress.update(++done);
    }
  writer.finish();
  std::vector<FileRecord> copied;
  copy_existing(storage, base, commit.temp(), kModelConfigFiles, copied);
  copy_existing(storage, config.tokenizer_path(), commit.temp(), kTokenizerFiles, copied);
  commit.commit();
  log::info("exported {} tensors to '{}'{}", done, target.string(), lora.enabled() ? " (adapter merged)" : "");
}

}  // namespace qft::train
