#include "tensor_check.h"

#include "qft/core/convert.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/core/member.h"
#include "qft/model/adapter_config.h"
#include "qft/model/pissa.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "stored/stored_format.h"
#include <fmt/ranges.h>

namespace qft::model {
namespace {

constexpr std::string_view kFrequencies = "rotary_emb.inv_freq";
constexpr double kRounding = 0.01;  ///< relative; the rounding of 16-bit values, and more

/// Returns true for tensors that files may hold beside the parameters: derived values, and the second name of a tied head, which
/// detect_tied_head() has compared.
bool is_redundant(const std::string& name, const ModelConfig& config) {
  return name.ends_with(kFrequencies) || (config.tie_word_embeddings && name == kLmHead);
}

/// Compares the frequencies of rotary embedding, which old files contain. config.json determines them, as in transformers.
void compare_frequencies(const ModelConfig& config, const io::ModelFiles& files) {
  const std::vector<double> ours = config.inverse_frequencies();
  for (const std::string& name : files.names()) {
    if (!name.ends_with(kFrequencies)) continue;
    const io::TensorLocation& at = files.at(name);
    std::vector<float> theirs(at.entry->elements());
    if (is_floating(at.entry->dtype)) at.file->read_floats(*at.entry, theirs.data());
    if (std::ranges::equal(ours, theirs, [](double a, double b) { return std::abs(a - b) <= kRounding * a; })) continue;
    log::warn_once(
        fmt::format("'{}': {} differs from the frequencies of config.json, which are used, as in transformers: is its rope_theta "
                    "correct?",
                    files.dir().string(), name));
    return;
  }
}

/// If embeddings or head are missing, suggests that tie_word_embeddings may be wrong.
void fail_tied(const ParamSpec& param, const std::string& name, const io::ModelFiles& files) {
  const bool head = param.path == kLmHead;
  if (!head && (param.path != kEmbedTokens || files.find(kLmHead) == nullptr)) return;
  if (head)
    fail(
        "model '{}' has no tensor '{}', which it needs because tie_word_embeddings is not true in its config.json: set it to "
        "true if the model's head is its embeddings; leave it if this is an embedding model, which stage embedding trains without "
        "a head; otherwise the download is incomplete",
        files.dir().string(), name);
  fail(
      "model '{}' has no tensor '{}', only a {}: if the two are tied (tie_word_embeddings), save the model again with "
      "transformers, which writes the embeddings; otherwise the download is incomplete",
      files.dir().string(), name, kLmHead);
}

}  // namespace

void require_shape(const io::TensorFile& file, const io::TensorEntry& entry, const std::vector<std::int64_t>& shape) {
  require(entry.shape == shape, "'{}': tensor '{}' has shape [{}], but the model's config.json requires [{}]",
          file.path().string(), entry.name, fmt::join(entry.shape, ", "), fmt::join(shape, ", "));
  require(is_floating(entry.dtype),
          "'{}': tensor '{}' has dtype {}: expected F32, BF16, F16 or F64 (quantised tensors need a quantization_config in "
          "config.json)",
          file.path().string(), entry.name, safetensors_name(entry.dtype));
}

void reject_unexpected_tensors(const ModelSpec& spec, const io::ModelFiles& files, const StoredFormat* stored) {
  std::set<std::string> known;
  for (const auto& unit : spec.units)
    for (const auto& param : unit.params)
      if (param.role == Role::base && stored && param.is_quantized()) {
        for (const std::string& weight : stored_weights(param))
          for (std::string& tensor : stored_tensors(*stored, weight, param.packed_whole)) known.insert(std::move(tensor));
      } else if (param.role == Role::base) {
        known.insert(param.name);
        for (const FileTensor& part : param.parts) known.insert(part.name);
      } else if (spec.in_model(param)) {
        known.insert(param.name);
      }
  std::vector<std::string> unexpected;
  for (const auto& name : files.names())
    if (!known.count(name) && !is_redundant(name, spec.config) && !spec.config.is_other(name)) unexpected.push_back(name);
  if (unexpected.empty()) return;
  const std::size_t n = unexpected.size();
  unexpected.resize(std::min<std::size_t>(n, 3));
  fail("'{}': {} tensors do not belong to a {} model, e.g. {}: does config.json's model_type match the files?",
       files.dir().string(), n, spec.config.architecture, fmt::join(unexpected, ", "));
}

void require_tensors(const ModelSpec& spec, const io::ModelFiles& files, const StoredFormat* stored) {
  reject_unexpected_tensors(spec, files, stored);
  compare_frequencies(spec.config, files);
  for (const auto& unit : spec.units)
    for (const auto& param : unit.params) {
      if (param.role != Role::base) continue;
      if (stored && param.is_quantized())
        for (const std::string& weight : stored_weights(param)) check_stored(*stored, files, weight, param.packed_whole);
      else
        sources_of(param, files);
    }
}

std::unique_ptr<io::TensorFile> open_adapter(const std::filesystem::path& dir) {
  const std::filesystem::path path = io::adapter_weights_of(dir);
  require(std::filesystem::exists(path), "adapter '{}' has no {}: is it complete?", dir.string(), path.filename().string());
  for (const io::WeightNames& way : io::kAdapterWeights)
    if (path.filename() != way.file && std::filesystem::exists(dir / way.file))
      log::warn_once(
          fmt::format("'{}': the adapter is read from {}; {} is ignored", dir.string(), path.filename().string(), way.file));
  auto file = io::open_tensor_file(path);
  return is_unconverted(dir) ? as_plain_adapter(std::move(file), open_initial_factors(member_of(dir, kPissaInitFile)))
                             : std::move(file);
}

std::string base_weight_of(const ParamSpec& factor) {
  static const std::string prefix = kAdapterPrefix;
  const char* mark = factor.role == Role::rotation ? kOftR : kLoraMark;
  const std::string module = factor.name.substr(prefix.size(), factor.name.rfind(mark) - prefix.size());
  return factor.shape.size() == 3 ? module : module + ".weight";  // an expert stack is not a module
}

std::vector<Source> sources_of(const ParamSpec& param, const io::ModelFiles& files) {
  std::vector<Source> sources;
  // A head that an adapter unties starts as the embeddings, even if the files have a tensor with its name.
  const bool whole = param.parts.empty() || (files.find(param.name) != nullptr && param.path != kLmHead);
  std::int64_t begin = 0;
  for (const FileTensor& part : whole ? std::vector<FileTensor>{{param.name, param.shape}} : param.parts) {
    if (files.find(part.name) == nullptr) fail_tied(param, part.name, files);
    const io::TensorLocation& where = files.at(part.name);
    require_shape(*where.file, *where.entry, part.shape);
    sources.push_back({where, begin});
    begin += static_cast<std::int64_t>(where.entry->elements());
  }
  return sources;
}

std::vector<std::string> stored_weights(const ParamSpec& param) {
  std::vector<std::string> names;
  for (const FileTensor& part : param.in_files()) names.push_back(part.name);
  QFT_ASSERT(std::ssize(names) == param.packed_pieces, "'{}' has {} tensors, but {} pieces", param.name, names.size(),
             param.packed_pieces);
  return names;
}

}  // namespace qft::model
