#include "qft/model/export.h"

#include "qft/core/convert.h"
#include "qft/core/error.h"
#include "qft/core/progress.h"
#include "qft/io/file.h"
#include "qft/io/model_files.h"
#include "qft/model/classifier.h"
#include "qft/model/sentence_files.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "export_formats.h"
#include <nlohmann/json.hpp>

namespace qft::model {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kChunkBytes = 16 << 20;

/// Writes one tensor as `type`, in chunks of at most `step` of its bytes: make(begin, n, from, to) converts the n bytes at
/// `begin` into the chunk to write. If the type stays the same, `to` is `from`.
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

/// `first_row`: the tensor's first row in the parameter viewed as a matrix.
void write_merged(const io::TensorLocation& from, DType type, std::int64_t columns, std::int64_t first_row,
                  const WeightChange& change, io::ModelWriter& writer) {
  const DType dtype = from.entry->dtype;
  const std::uint64_t row_bytes = static_cast<std::uint64_t>(columns) * size_of(dtype);
  const std::uint64_t step = std::max<std::uint64_t>(1, kChunkBytes / row_bytes) * row_bytes;
  stream(from, type, step, writer, [&](std::uint64_t begin, std::uint64_t n, const char* bytes, char* to) {
    change.apply(dtype, bytes, type, to, columns, first_row + static_cast<std::int64_t>(begin / row_bytes),
                 static_cast<std::int64_t>(n / row_bytes));
  });
}

void write_unmerged(const io::TensorLocation& from, DType type, io::ModelWriter& writer) {
  const DType dtype = from.entry->dtype;
  std::vector<float> values;
  stream(from, type, kChunkBytes, writer, [&](std::uint64_t, std::uint64_t n, const char* bytes, char* to) {
    if (dtype == type) return;
    values.resize(n / size_of(dtype));
    to_float(dtype, bytes, values.size(), values.data());
    from_float(type, values.data(), values.size(), to);
  });
}

/// Updates config.json: the weights' type, under transformers' old or new key; no quantization_config; whether the head is untied
/// or a classifier's.
void correct_config(io::Storage& storage, const fs::path& dir, const MergedModel& model, const ExportRequest& request) {
  const std::optional<DType> asked = request.dtype;
  const Head& head = model.spec().head;
  if (head.classifies()) {
    const std::string text =
        classifier_config(io::read_text_file(dir / io::kModelConfigFile), model.spec().config, head.values, request.problem_type);
    const bool ranks = sentence_model(dir) == SentenceModel::other;
    io::write_file(storage, dir / io::kModelConfigFile, ranks ? with_pad_token(text, dir) : text);
  }
  const bool stored = model.spec().config.stored.has_value(), untied = model.spec().untied;
  if (!asked && !stored && !untied) return;
  auto config = nlohmann::ordered_json::parse(io::read_text_file(dir / io::kModelConfigFile));
  const auto set = [&](nlohmann::ordered_json& object) {
    if (asked || stored)
      object[object.contains("torch_dtype") ? "torch_dtype" : "dtype"] = torch_name(asked.value_or(model.tensors().front().type));
    object.erase("quantization_config");
    if (untied) object["tie_word_embeddings"] = false;
  };
  set(config);
  if (const auto text = config.find("text_config"); text != config.end() && text->is_object()) set(*text);
  io::write_file(storage, dir / io::kModelConfigFile, config.dump(2) + "\n");
}

/// Returns the tensors outside the decoder, by name.
std::vector<const io::TensorEntry*> others(const ModelSpec& spec, const io::ModelFiles& files) {
  std::vector<const io::TensorEntry*> entries;
  for (const std::string& name : files.names())
    if (spec.keeps(name)) {
      const io::TensorLocation& at = files.at(name);
      require(!spec.config.stored || is_floating(at.entry->dtype),
              "'{}': tensor '{}' is also quantised, but belongs to no decoder layer, so a 16-bit copy cannot hold it: export "
              "from the 16-bit model",
              at.file->path().string(), name);
      entries.push_back(at.entry);
    }
  return entries;
}

/// Returns all tensors, as `type` or with their element types in the files.
std::vector<io::TensorSpec> tensors_of(const MergedModel& model, std::optional<DType> type) {
  std::vector<io::TensorSpec> tensors;
  for (const ModelTensor& tensor : model.tensors()) tensors.push_back({tensor.name, type.value_or(tensor.type), tensor.shape});
  for (const io::TensorEntry* entry : others(model.spec(), model.files()))
    tensors.push_back({entry->name, entry->dtype, entry->shape});
  return tensors;
}

ExportReport export_plain(io::Storage& storage, const ExportRequest& request, MergedModel& model, const fs::path& target) {
  std::vector<io::TensorSpec> tensors = tensors_of(model, request.dtype);
  ExportReport report;
  report.tensors = static_cast<std::int64_t>(tensors.size());
  io::ModelWriter writer(storage, target, std::move(tensors), request.max_shard_bytes);
  Progress progress("export", report.tensors);
  std::int64_t done = 0;
  for (const ModelTensor& tensor : model.tensors()) {
    const WeightChange* change = model.change_of(*tensor.param);
    const DType type = request.dtype.value_or(tensor.type);
    report.bytes += Box::whole(tensor.shape).elements() * size_of(type);
    report.converted += tensor.is_stored() || type != tensor.type ? 1 : 0;
    report.merged += model.changes(*tensor.param) ? 1 : 0;
    if (const io::TensorLocation* whole = model.replacement(*tensor.param))
      write_unmerged(*whole, type, writer);
    else if (tensor.is_stored())
      request.code->write_decoded(model, tensor, type, writer);
    else if (change != nullptr)
      write_merged(tensor.plain, type, tensor.columns(), tensor.first_row, *change, writer);
    else
      write_unmerged(tensor.plain, type, writer);
    progress.update(++done);
  }
  for (const io::TensorEntry* entry : others(model.spec(), model.files())) {
    write_unmerged(model.files().at(entry->name), entry->dtype, writer);
    report.bytes += entry->bytes();
    ++report.kept;
    progress.update(++done);
  }
  writer.finish();
  write_config_files(storage, request, model, target);
  io::copy_existing(storage, request.adapter.empty() ? request.base : request.adapter, target, io::kValueHeadFiles);
  correct_config(storage, target, model, request);
  return report;
}

/// True if the tokenizer's files come unchanged from the folder of modules.json: its tokenizer appends the end token, and its
/// chat template shows texts as sentence-transformers passes them.
bool brings_tokenizer(const ExportRequest& request, const fs::path& described) {
  return !request.fixed_tokenizer && !described.empty() && fs::exists(described / io::kTokenizerFile) &&
         (described == request.adapter || request.tokenizer == request.base);
}

/// Throws ConfigError if the format cannot hold the model's head.
void require_head_fits(const ExportRequest& request, const MergedModel& model) {
  const fs::path& from = request.adapter.empty() ? request.base : request.adapter;
  if (model.spec().head.classifies() && request.format != ExportFormat::safetensors)
    fail_config(
        "'{}' is a classifier with {} labels, and exporting classifiers to 4 bits or GGUF is not implemented: export in 16 bits, "
        "without export_quantization_bit and export_format",
        from.string(), model.spec().head.values);
  const bool gguf = request.format == ExportFormat::gguf || request.format == ExportFormat::gguf_q8_0;
  if (const fs::path described = sentence_folder(request.base, request.adapter); gguf && !described.empty())
    fail_config(
        "'{}' has a {}: it is an embedding model or a reranker, and writing its pooling or scores to GGUF is not implemented: "
        "export without export_format, or remove that file to export a language model",
        described.string(), kModulesFile);
  if (const fs::path head = io::value_head_of(from); gguf && !head.empty())
    fail_config(
        "'{}' is a reward model, and GGUF cannot hold its head ('{}'): export without export_format, or remove that file from "
        "the model",
        from.string(), head.filename().string());
}

}  // namespace

void write_config_files(io::Storage& storage, const ExportRequest& request, const MergedModel& model, const fs::path& target) {
  io::copy_existing(storage, request.base, target, std::array{io::kModelConfigFile});
  write_generation_config(storage, request.base, target, request.changes);
  const fs::path described = sentence_folder(request.base, request.adapter);
  if (brings_tokenizer(request, described))
    write_tokenizer(storage, described, request.base, target, {});
  else
    write_tokenizer(storage, request.tokenizer, request.base, target, request.changes);
  if (!described.empty()) copy_sentence_files(storage, described, target);
  if (!request.config.empty()) io::write_file(storage, target / io::kModelConfigFile, request.config);
  if (const ModelConfig& own = model.spec().config; request.config.empty() && own.rewritten)
    io::write_file(storage, target / io::kModelConfigFile, own.raw);
}

ExportReport export_model(io::Storage& storage, const ExportRequest& request) {
  io::require_absent_or_empty(request.target, "export directory");
  QFT_ASSERT(request.format == ExportFormat::safetensors || request.code != nullptr, "this format needs LibTorch");
  MergedModel model(request.base, request.adapter, request.earlier, request.code);
  require_head_fits(request, model);
  io::CommitDir commit(storage, request.target);
  const auto write = request.format == ExportFormat::safetensors    ? export_plain
                     : request.format == ExportFormat::bitsandbytes ? request.code->bitsandbytes
                                                                    : request.code->gguf;
  const ExportReport report = write(storage, request, model, commit.temp());
  commit.commit();
  return report;
}

}  // namespace qft::model
