#include "qft/train/save_model.h"

#include "qft/comm/exchange.h"
#include "qft/core/convert.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/device/scalar_type.h"
#include "qft/device/staged_copy.h"
#include "qft/engine/model_source.h"
#include "qft/engine/sentence_transformers.h"
#include "qft/engine/trained_text.h"
#include "qft/infer/load_model.h"
#include "qft/io/companion_files.h"
#include "qft/io/model_files.h"
#include "qft/model/adapter_config.h"
#include "qft/model/classifier.h"
#include "qft/model/export.h"
#include "qft/model/load.h"
#include "qft/model/pissa.h"
#include "qft/model/tokenizer_changes.h"
#include "qft/parallel/whole_tensors.h"
#include "qft/train/saver.h"

#include <algorithm>
#include <array>
#include <exception>
#include <map>
#include <memory>
#include <set>
#include <span>

#include <ATen/ops/empty.h>

namespace qft::train {
namespace {

namespace fs = std::filesystem;
using checkpoint::FileRecord;

FileRecord write_text(io::Storage& storage, const fs::path& dir, const std::string& name, const std::string& text) {
  io::write_file(storage, dir / name, text);
  return {name, text.size(), hash_hex(text)};
}

FileRecord record_of(const fs::path& dir, const fs::path& file) {
  return {file.generic_string(), fs::file_size(dir / file), hash_file(dir / file)};
}

/// Host copies of a file's tensors, by name.
using Tensors = std::map<std::string, std::pair<std::vector<std::int64_t>, at::Tensor>>;

/// Tensors that a run trains besides the base model.
struct AddedTensors {
  Tensors adapter, value_head;
};

at::ScalarType adapter_type(const engine::Instance& instance) {
  const at::ScalarType master = instance.precision().master;
  return master == at::kDouble ? at::kFloat : master;  // PEFT expects no fp64
}

/// True for the head of a reward model, which has a separate file.
bool has_own_file(const model::ModelSpec& spec, const model::ParamSpec& p) {
  return p.role == model::Role::value_head && !spec.in_model(p);
}

/// True for a parameter that goes to the adapter's or the value head's file.
bool is_added(const model::ModelSpec& spec, const model::ParamSpec& p) {
  return has_own_file(spec, p) || !spec.in_adapter(p).empty();
}

/// Calls `visit` with the unit and each such parameter.
void for_each_added(const model::ModelSpec& spec, const std::function<void(int, const model::ParamSpec&)>& visit) {
  for (int u = 0; u < spec.num_units(); ++u)
    for (const auto& p : spec.units[static_cast<std::size_t>(u)].params)
      if (is_added(spec, p)) visit(u, p);
}

/// Gathers all added tensors on rank 0; empty elsewhere. Collective.
AddedTensors gather_added(engine::Instance& instance, comm::Communicator& comm) {
  if (!instance.spec().adapter.enabled() && instance.spec().head != model::Head::value) return {};
  std::map<std::string, at::Tensor> copies;
  at::Tensor buffer;
  const c10::Device device = instance.transformer().device();
  device::StagedCopy staged(device);
  const bool first = comm.rank() == 0;
  parallel::WholeTensors tensors(instance.spec(), instance.groups().tensor(), device,
                                 [&](const model::ParamSpec& p) { return first && is_added(instance.spec(), p); });
  take_memory(comm, device, "gathering the adapter", [&] {
    tensors.reserve(instance.precision().master);
    if (instance.spec().adapter.enabled()) buffer = instance.master_buffer();
    if (!first) return;
    staged.reserve();
    for_each_added(instance.spec(), [&](int, const model::ParamSpec& p) {
      copies[p.name] = at::empty({p.whole().numel}, at::TensorOptions().dtype(adapter_type(instance)));
    });
  });
  int gathered = -1;
  at::Tensor whole;
  AddedTensors added;
  for_each_added(instance.spec(), [&](int unit, const model::ParamSpec& p) {
    if (unit != gathered) whole = instance.whole_master(gathered = unit, buffer);
    const at::Tensor values = tensors.put_together(p, whole.narrow(0, p.offset, p.numel));
    if (!first) return;
    const at::Tensor& copy = copies.at(p.name);
    staged.to_host(copy, values);
    if (instance.spec().in_model(p)) {
      added.adapter[instance.spec().in_adapter(p).front().name] = {p.shape, copy.view(p.shape)};
      return;
    }
    Tensors& tensors = has_own_file(instance.spec(), p) ? added.value_head : added.adapter;
    for (auto& [tensor, values] : model::as_in_files(p, copy)) tensors[tensor.name] = {tensor.shape, values};
  });
  return added;
}

/// Renames tensors as in the adapter's original files.
Tensors as_named(Tensors tensors, const model::AdapterTargets& targets) {
  constexpr std::string_view kOuter = model::kAdapterPrefix;
  Tensors named;
  for (auto& [name, tensor] : tensors)
    named[name.starts_with(kOuter) ? model::kAdapterPrefix + targets.name_in_files(name.substr(kOuter.size())) : name] =
        std::move(tensor);
  return named;
}

FileRecord write_tensors(const Tensors& tensors, io::Storage& storage, const fs::path& dir, const char* file) {
  std::vector<io::TensorSpec> specs;
  for (const auto& [name, tensor] : tensors) specs.push_back({name, device::dtype_of(tensor.second.scalar_type()), tensor.first});
  io::SafetensorsWriter writer(storage, dir / file, specs);
  for (const auto& [name, tensor] : tensors) writer.append(tensor.second.data_ptr(), tensor.second.nbytes());
  writer.finish();
  return {file, writer.file_bytes(), writer.checksum()};
}

void write_value_head(const AddedTensors& added, io::Storage& storage, const fs::path& dir, std::vector<FileRecord>& written) {
  if (!added.value_head.empty()) written.push_back(write_tensors(added.value_head, storage, dir, io::kValueHeadFiles[0]));
}

/// Converts a PiSSA adapter to the equivalent plain adapter of twice the rank. Other tensors stay unchanged.
Tensors converted(Tensors adapter, const io::TensorFile& initial) {
  for (const io::TensorEntry& entry : initial.entries()) {
    auto& [shape, values] = adapter.at(entry.name);
    const bool a = entry.name.ends_with(model::kLoraA);
    const at::Tensor now = values.to(at::kFloat).contiguous(), first = at::empty(shape, at::kFloat);
    initial.read(entry, 0, entry.bytes(), first.data_ptr());
    const auto all = [](const at::Tensor& t) {
      return std::span(t.const_data_ptr<float>(), static_cast<std::size_t>(t.numel()));
    };
    const std::vector<float> both =
        model::with_initial_factor(a ? model::Role::lora_a : model::Role::lora_b, a ? shape[0] : shape[1], all(now), all(first));
    shape[a ? 0 : 1] *= 2;
    values = at::empty(shape, at::kFloat);
    std::ranges::copy(both, values.data_ptr<float>());
  }
  return adapter;
}

/// Writes the initial PiSSA factors. A resume needs them, and so do readers of an unconverted adapter.
FileRecord write_initial_factors(const io::TensorFile& initial, io::Storage& storage, const fs::path& dir) {
  Tensors tensors;
  for (const io::TensorEntry& entry : initial.entries()) {
    const at::Tensor values = at::empty(entry.shape, at::kFloat);
    initial.read(entry, 0, entry.bytes(), values.data_ptr());
    tensors[model::kPissaPrefix + entry.name] = {entry.shape, values};
  }
  return write_tensors(tensors, storage, dir, model::kPissaInitFile);
}

/// Tensors of the model's files outside the decoder (ModelConfig::other_prefixes). The saved model keeps them unchanged.
class OtherTensors {
 public:
  OtherTensors() = default;
  OtherTensors(const engine::Instance& instance, const fs::path& model) {
    const auto& config = instance.spec().config;
    if (config.other_prefixes.empty()) return;
    files_ = std::make_shared<const io::ModelFiles>(io::ModelFiles::open(model));
    for (const std::string& name : files_->names())
      if (instance.spec().keeps(name)) all_.push_back(files_->at(name));
  }
  void add_to(std::vector<io::TensorSpec>& specs) const {
    for (const io::TensorLocation& t : all_) specs.push_back({t.entry->name, t.entry->dtype, t.entry->shape});
  }
  void append_to(io::ModelWriter& writer) const {
    constexpr std::uint64_t kPiece = 16 << 20;
    std::vector<char> bytes;
    for (const io::TensorLocation& t : all_)
      for (std::uint64_t begin = 0; begin < t.entry->bytes(); begin += bytes.size()) {
        bytes.resize(std::min(kPiece, t.entry->bytes() - begin));
        t.file->read(*t.entry, begin, bytes.size(), bytes.data());
        writer.append(bytes.data(), bytes.size());
      }
  }

 private:
  std::shared_ptr<const io::ModelFiles> files_;
  std::vector<io::TensorLocation> all_;
};

/// Returns every base tensor in the order of the units, with names and shapes as in files.
std::vector<io::TensorSpec> base_tensors(const engine::Instance& instance) {
  const DType dtype = device::dtype_of(instance.precision().compute);
  std::vector<io::TensorSpec> specs;
  for (const auto& unit : instance.spec().units)
    for (const auto& p : unit.params)
      if (instance.spec().in_model(p))
        for (const model::FileTensor& part : p.in_files()) specs.push_back({part.name, dtype, part.shape});
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

/// Returns the bytes of the whole parameter in this type.
std::uint64_t bytes_of(const model::ParamSpec& p, at::ScalarType type) {
  return Box::whole(p.shape).elements() * c10::elementSize(type);
}

/// The names of the tensors that this rank writes. A rank beyond the writers has none.
using Names = std::set<std::string>;

Names names_to_write(const std::vector<io::TensorSpec>& specs, const Writers& who) {
  Names names;
  if (who.rank() >= who.writers) return names;
  for (const auto& shard : io::plan_shards(specs, model::kDefaultShardBytes, who.rank(), who.writers))
    for (const io::TensorSpec& tensor : shard.tensors)
      if (shard.mine) names.insert(tensor.name);
  return names;
}

/// Gathers one unit after another on every rank, and puts parameters of which tensor ranks hold parts together where one of their
/// tensors is `to_write`. Calls `visit` with each base parameter and its values in order: on the device or in host memory, valid
/// during the call, the parameter's file tensors one after the other; undefined if other ranks write them all. If `visit` throws,
/// the exception is rethrown after the last gather, because the other ranks need this one. Collective.
void for_each_base_param(engine::Instance& instance, comm::Communicator& comm, const Names& to_write,
                         const std::function<void(const model::ParamSpec&, const at::Tensor&)>& visit) {
  const c10::Device device = instance.transformer().device();
  parallel::WholeTensors tensors(instance.spec(), instance.groups().tensor(), device, [&](const model::ParamSpec& p) {
    const std::vector<model::FileTensor> parts = p.in_files();
    return std::ranges::any_of(parts, [&](const model::FileTensor& part) { return to_write.contains(part.name); });
  });
  std::exception_ptr failure;
  for (int u = 0; u < instance.spec().num_units(); ++u) {
    take_memory(comm, device, "gathering the model", [&] {
      tensors.reserve(instance.precision().compute);
      instance.weights().make_room(u);
    });
    const auto& buffers = instance.weights().acquire(u);
    for (const auto& p : instance.spec().units[static_cast<std::size_t>(u)].params) {
      if (!instance.spec().in_model(p)) continue;
      const at::Tensor values = tensors.put_together(p, model::param_view(p, buffers));
      if (failure) continue;
      try {
        visit(p, values);
      } catch (...) {
        failure = std::current_exception();
      }
    }
    instance.weights().release(u);
  }
  if (failure) std::rethrow_exception(failure);
}

/// Writes tensors one after the other; `values` is undefined for tensors that other ranks write.
std::vector<FileRecord> write_base_model(const std::vector<io::TensorSpec>& specs, const std::vector<at::Tensor>& values,
                                         const OtherTensors& others, int rank, int writers, io::Storage& storage,
                                         const fs::path& dir) {
  if (rank >= writers) return {};
  io::ModelWriter writer(storage, dir, specs, model::kDefaultShardBytes, {{"format", "pt"}}, rank, writers);
  for (std::size_t i = 0; i < values.size(); ++i)
    writer.append(values[i].defined() ? values[i].data_ptr() : nullptr, specs[i].bytes());
  others.append_to(writer);
  writer.finish();
  return records_of(writer, dir);
}

WriteModel stage_base_model(engine::Instance& instance, const fs::path& base_dir, const Writers& who) {
  auto specs = base_tensors(instance);
  const std::size_t own = specs.size();
  OtherTensors others;
  comm::agreed(who.comm, [&] { others = OtherTensors(instance, base_dir); });
  others.add_to(specs);
  std::vector<at::Tensor> values;
  take_memory(who.comm, instance.transformer().device(), "the copy of the model's weights", [&] {
    for (const auto& shard : io::plan_shards(specs, model::kDefaultShardBytes, who.rank(), who.writers))
      for (std::size_t i = 0; i < shard.tensors.size() && values.size() < own; ++i) {
        const bool mine = shard.mine && who.rank() < who.writers;
        values.push_back(mine ? at::empty(specs[values.size()].shape, at::TensorOptions().dtype(instance.precision().compute))
                              : at::Tensor());
      }
  });
  std::size_t next = 0;
  device::StagedCopy staged(instance.transformer().device());
  for_each_base_param(instance, who.comm, names_to_write(specs, who), [&](const model::ParamSpec& p, const at::Tensor& weights) {
    std::int64_t begin = 0;
    for (std::size_t parts = p.in_files().size(); parts > 0; --parts) {
      const auto count = static_cast<std::int64_t>(specs[next].elements());
      if (const at::Tensor& copy = values[next++]; copy.defined()) staged.to_host(copy, weights.narrow(0, begin, count));
      begin += count;
    }
  });
  return [specs, values = std::move(values), others = std::move(others), rank = who.rank(), writers = who.writers](
             io::Storage& storage, const fs::path& dir) {
    return write_base_model(specs, values, others, rank, writers, storage, dir);
  };
}

std::vector<FileRecord> save_base_model(engine::Instance& instance, const fs::path& base_dir, const Writers& who,
                                        io::Storage& storage, const fs::path& dir) {
  OtherTensors others;
  comm::agreed(who.comm, [&] { others = OtherTensors(instance, base_dir); });
  auto specs = base_tensors(instance);
  others.add_to(specs);
  std::unique_ptr<io::ModelWriter> writer;
  device::StagedCopy staged(instance.transformer().device());
  for_each_base_param(instance, who.comm, names_to_write(specs, who), [&](const model::ParamSpec& p, const at::Tensor& weights) {
    if (who.rank() >= who.writers) return;
    if (!writer)
      writer = std::make_unique<io::ModelWriter>(storage, dir, specs, model::kDefaultShardBytes, io::Metadata{{"format", "pt"}},
                                                 who.rank(), who.writers);
    if (!weights.defined()) return writer->append(nullptr, bytes_of(p, instance.precision().compute));
    const at::Tensor host = staged.on_host(weights, instance.precision().compute);
    writer->append(host.data_ptr(), host.nbytes());
  });
  if (!writer) return {};
  others.append_to(*writer);
  writer->finish();
  return records_of(*writer, dir);
}

/// Returns the text of config.json if rope_scaling, untied embeddings or the head of a trained model change it; else empty.
std::string changed_config(const config::RunConfig& config, const model::ModelSpec& spec) {
  const model::ModelConfig& model = spec.config;
  if (spec.head.classifies()) {
    const bool ranks = config.stage().sample == config::SampleKind::ranking;  // its scores belong to no kind of classification
    std::string text = model::classifier_config(model.raw, model, spec.head.values,
                                                ranks ? "" : engine::problem_of(config, model, spec.head.values));
    return ranks ? model::with_pad_token(text, config.tokenizer_path()) : text;
  }
  return model.rewritten || !config.model.rope_scaling.empty() ? model.raw : std::string();
}

/// Writes the files beside the weights.
void write_companions(const config::RunConfig& config, const model::ModelSpec& spec, io::Storage& storage, const fs::path& dir,
                      std::vector<FileRecord>& written) {
  const fs::path base = config.model_path();
  const model::TokenizerChanges changes = engine::saved_text(config);
  if (!spec.adapter.enabled()) {
    if (const std::string text = changed_config(config, spec); !text.empty()) {
      written.push_back(write_text(storage, dir, io::kModelConfigFile, text));
    } else {
      io::copy_existing(storage, base, dir, std::array{io::kModelConfigFile});
      written.push_back(record_of(dir, io::kModelConfigFile));
    }
    if (model::write_generation_config(storage, base, dir, changes)) written.push_back(record_of(dir, io::kGenerationConfigFile));
  }
  std::vector<fs::path> files = model::write_tokenizer(storage, config.tokenizer_path(), base, dir, changes);
  for (const fs::path& file : engine::write_sentence_transformers(config, spec.head, storage, dir))
    if (std::ranges::find(files, file) == files.end()) files.push_back(file);
  for (const fs::path& file : files) written.push_back(record_of(dir, file));
}

/// Without an adapter an export would only copy the model. Throws ConfigError unless it changes the format or the element type.
void require_conversion(const config::RunConfig& config, const engine::ModelSource& source, std::optional<DType> dtype) {
  if (source.own_config().stored) return;
  const io::ModelFiles& files = source.files();
  for (const std::string& name : files.names())
    if (dtype && files.at(name).entry->dtype != *dtype) return;
  const fs::path trained = infer::unused_result(config);
  const bool whole = !trained.empty() && !fs::exists(trained / model::kAdapterConfigFile);
  fail_config(
      "nothing to merge: no adapter_name_or_path is given, and '{}' would be copied unchanged. {}; infer_dtype writes "
      "another element type",
      files.dir().string(),
      trained.empty() ? std::string("Give the adapter in the output_dir of the training")
      : whole         ? fmt::format("The training wrote a whole model to '{}', which needs no export", trained.string())
                      : fmt::format("Give {}, which was trained from this file", infer::setting_for(trained)));
}

model::ExportFormat format_of(const config::ExportArgs& exporting) {
  if (exporting.export_quantization_bit) return model::ExportFormat::bitsandbytes;
  if (exporting.export_format == "gguf") return model::ExportFormat::gguf;
  return exporting.export_format == "gguf_q8_0" ? model::ExportFormat::gguf_q8_0 : model::ExportFormat::safetensors;
}

}  // namespace

std::vector<FileRecord> save_model(const config::RunConfig& config, engine::Instance& instance, io::Storage& storage,
                                   const fs::path& dir, const Writers& who) {
  if (instance.spec().adapter.enabled()) return stage_model(config, instance, who)(storage, dir);
  const AddedTensors added = gather_added(instance, who.comm);
  std::vector<FileRecord> written = save_base_model(instance, config.model_path(), who, storage, dir);
  write_value_head(added, storage, dir, written);
  if (who.rank() == 0) write_companions(config, instance.spec(), storage, dir, written);
  return written;
}

WriteModel stage_model(const config::RunConfig& config, engine::Instance& instance, const Writers& who) {
  const bool adapted = instance.spec().adapter.enabled(), first = who.rank() == 0;
  AddedTensors added = gather_added(instance, who.comm);
  WriteModel base;
  if (!adapted) base = stage_base_model(instance, config.model_path(), who);
  const std::shared_ptr<const io::TensorFile> initial = instance.initial_factors();
  model::AdapterConfig saved_config = instance.spec().adapter;
  saved_config.lora.dropout = config.finetuning.lora_dropout;  // also if the objective trains without dropout
  if (initial && saved_config.lora.pissa->convert) {
    added.adapter = converted(std::move(added.adapter), *initial);
    saved_config = saved_config.lora.plain();
  }
  added.adapter = as_named(std::move(added.adapter), saved_config.targets());
  return [&config, &spec = instance.spec(), adapted, first, initial, saved_config = std::move(saved_config),
          added = std::move(added), base = std::move(base)](io::Storage& storage, const fs::path& dir) {
    std::vector<FileRecord> written = base ? base(storage, dir) : std::vector<FileRecord>{};
    if (!first) return written;
    if (adapted) {
      written.push_back(write_tensors(added.adapter, storage, dir, model::kAdapterWeightsFile));
      if (initial) written.push_back(write_initial_factors(*initial, storage, dir));
      std::string text = model::adapter_config_json(saved_config, config.model.model_name_or_path);
      if (spec.head.kind == model::Head::Kind::vector) text = engine::without_task(text, spec.config);
      written.push_back(write_text(storage, dir, model::kAdapterConfigFile, text));
    }
    write_value_head(added, storage, dir, written);
    write_companions(config, spec, storage, dir, written);
    return written;
  };
}

void export_model(const config::RunConfig& config, io::Storage& storage) {
  const fs::path base = config.model_path();
  const auto source = engine::ModelSource::read(config, engine::Use::inference);
  const std::optional<engine::AdapterSource>& live = source.live();
  const fs::path adapter = live ? live->dir : fs::path();
  std::vector<fs::path> earlier;
  for (const engine::AdapterSource& merged : source.merged()) earlier.push_back(merged.dir);
  if (config.model.quantization_bit)
    fail_config(
        "{}: quantization_bit is {}, which sets how training holds weights, but an export has 16 bits, or the type of "
        "infer_dtype: remove it (an adapter trained on quantised weights is merged into the model's own), or set "
        "export_quantization_bit: 4 to write 4 bits",
        config.given.contains("quantization_bit") ? config.given.find("quantization_bit")->second : "export",
        *config.model.quantization_bit);
  const std::optional<DType> dtype = dtype_from_torch(config.model.infer_dtype);
  const model::ExportFormat format = format_of(config.exporting);
  if (adapter.empty() && format == model::ExportFormat::safetensors) require_conversion(config, source, dtype);
  const std::string scaled = config.model.rope_scaling.empty() ? std::string() : source.config().raw;
  if (!scaled.empty() && (format == model::ExportFormat::gguf || format == model::ExportFormat::gguf_q8_0))
    fail_config("{}: rope_scaling is {}, but an export to GGUF cannot write it: {}", config.given.find("rope_scaling")->second,
                config.model.rope_scaling,
                config.model.rope_scaling == "linear" || config.model.rope_scaling == "llama3"
                    ? "export to safetensors with it first, then export the result to GGUF"
                    : "leave it out for texts within the model's positions");
  const model::Head head = model::head_of(source.own_config(), live ? live->config : model::AdapterConfig{});
  for (const engine::AdapterSource& merged : source.merged())
    if (merged.config.targets().labels > 0 && !head.classifies())
      fail_config(
          "the adapter '{}' belongs to a classifier, but the last adapter '{}' lacks the classifier's head: export the first one "
          "alone",
          merged.dir.string(), adapter.string());
  const auto& exporting = config.exporting;
  const auto report = model::export_model(
      storage, {base, adapter, earlier, config.tokenizer_path(), exporting.export_dir,
                static_cast<std::uint64_t>(exporting.export_size) * 1'000'000'000, dtype, format, &model::export_code(), scaled,
                config.finetuning.problem_type, engine::exported_text(config, adapter)});
  log::info("exported '{}'{} to '{}': {} tensors, {} of them merged with the adapter, {} converted to another type{}",
            base.string(),
            adapter.empty()
                ? ""
                : fmt::format(" with {}adapter '{}'",
                              earlier.empty() ? "" : fmt::format("{} earlier adapters and ", earlier.size()), adapter.string()),
            exporting.export_dir, report.tensors, report.merged, report.converted,
            report.kept == 0 ? "" : fmt::format(", {} outside the text model copied unchanged", report.kept));
  if (format == model::ExportFormat::bitsandbytes)
    log::info("rounding to 4 bits changed the linears by {:.2f}% of their norm{}", 100.0 * report.rounding,
              adapter.empty()
                  ? std::string()
                  : fmt::format(", the adapter by {:.2f}%: {}", 100.0 * report.adapter,
                                report.rounding > report.adapter
                                    ? "more than the training; export in 16 bits, or keep the adapter beside a model in "
                                      "4 bits (quantization_bit), to lose nothing"
                                    : "less than the training; an export in 16 bits loses nothing"));
}

}  // namespace qft::train
