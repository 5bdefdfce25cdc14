#include "qft/train/save_model.h"

#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <span>


#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/io/file.h"
#include "qft/io/model_files.h"
#include "qft/model/adapter_config.h"
#include "qft/model/export.h"

namespace qft::train {
namespace {

namespace fs = std::filesystem;
using checkpoint::FileRecord;

constexpr std::uint64_t kDefaultShardBytes = 5'000'000'000;

FileRecord write_text(io::Storage& storage, const fs::path& dir, const std::string& name, const std::string& text) {
  const auto file = storage.create(dir / name);
  file->append(text.data(), text.size());
  file->sync();
  file->close();
  return {name, text.size(), hash_hex(text)};
}

/// Those of `names` that `from` has.
void copy_existing(io::Storage& storage, const fs::path& from, const fs::path& to, std::span<const char* const> names,
                   std::vector<FileRecord>& written) {
  for (const std::string& name : io::copy_existing(storage, from, to, names))
    written.push_back({name, fs::file_size(to / name), hash_file(to / name)});
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

}  // namespace

std::vector<FileRecord> save_model(const config::RunConfig& config, parallel::Instance& instance, io::Storage& storage,
                                   const fs::path& dir, const Writers& who) {
  const bool lora = instance.spec().lora.enabled();
  std::vector<FileRecord> written = lora ? write_adapter(config, instance, storage, dir, who.rank == 0)
                                         : write_base_model(instance, storage, dir, who);
  if (who.rank != 0) return written;
  if (!lora) copy_existing(storage, config.model.model_name_or_path, dir, io::kModelConfigFiles, written);
  copy_existing(storage, config.tokenizer_path(), dir, io::kTokenizerFiles, written);
  return written;
}

void export_model(const config::RunConfig& config, io::Storage& storage) {
  const auto& exporting = config.exporting;
  if (exporting.export_dir.empty())
    fail_config("qft export needs export_dir: the directory to write the merged model to");
  const auto report = model::export_model(
      storage, {config.model.model_name_or_path, parallel::adapter_dir(config), config.tokenizer_path(), exporting.export_dir,
                static_cast<std::uint64_t>(exporting.export_size) * 1'000'000'000});
  log::info("exported {} tensors ({} merged with the adapter) to '{}'", report.tensors, report.merged, exporting.export_dir);
}

}  // namespace qft::train
