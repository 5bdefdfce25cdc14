#include "merged_model.h"

#include "qft/core/convert.h"
#include "qft/core/error.h"
#include "qft/model/adapter_config.h"
#include "qft/model/classifier.h"
#include "qft/model/merge.h"
#include "qft/model/sentence_files.h"

#include <utility>

#include "export_formats.h"
#include "stored/stored_format.h"
#include "tensor_check.h"

namespace qft::model {
namespace {

namespace fs = std::filesystem;

/// Returns the type of the first tensor that is not quantised.
DType plain_type(const io::ModelFiles& files) {
  for (const std::string& name : files.names())
    if (const DType type = files.at(name).entry->dtype; is_floating(type)) return type;
  fail("'{}' holds no tensors of a floating type", files.dir().string());
}

/// Returns the head to export. Files of an embedding model may lack lm_head, which it does not use, though config.json unties it
/// (Qwen3-Embedding-8B). Their tensors have no prefix if transformers' AutoModel saved them.
Head exported_head(const ModelConfig& config, const AdapterConfig& own, const io::ModelFiles& files, const fs::path& base,
                   const fs::path& adapter) {
  const Head head = head_of(config, own);
  if (head.kind != Head::Kind::language_model || config.tie_word_embeddings || files.find(kLmHead) != nullptr) return head;
  const fs::path described = sentence_folder(base, adapter);
  const bool pools = !described.empty() && sentence_model(described) == SentenceModel::embedding;
  const bool by_adapter = !adapter.empty() && fits_task(SentenceModel::embedding, adapter);
  const bool bare = adapter.empty() && config.text_prefix.empty();
  return pools || by_adapter || bare ? Head::vector(config.hidden_size) : head;
}

ModelSpec spec_of(const fs::path& base, const io::ModelFiles& files, const fs::path& adapter, const ExportCode* code) {
  const AdapterConfig own = adapter.empty() ? AdapterConfig{} : read_adapter_config(adapter);
  const ModelConfig config = ModelConfig::load(base);
  if (config.stored && code == nullptr)
    fail_config("the files of '{}' are quantised, and qft-ckpt cannot decode them: use qft export", base.string());
  return ModelSpec::build(config, own.enabled() ? Finetuning::adapter : Finetuning::full, own,
                          config.stored ? code->weight_storage(*config.stored, &files) : WeightStorage::in({}),
                          exported_head(config, own, files, base, adapter));
}

io::ModelFiles open_merged(const fs::path& base, const std::vector<fs::path>& earlier) {
  io::ModelFiles files = io::ModelFiles::open(base);
  merge_adapters(files, ModelConfig::load(base), earlier);
  return files;
}

}  // namespace

MergedModel::MergedModel(const fs::path& base, const fs::path& adapter, const std::vector<fs::path>& earlier,
                         const ExportCode* code)
    : files_(open_merged(base, earlier)), spec_(std::make_unique<ModelSpec>(spec_of(base, files_, adapter, code))) {
  if (spec_->config.stored) stored_ = code->stored_format(*spec_->config.stored);
  require_tensors(*spec_, files_, stored_.get());
  if (spec_->adapter.enabled()) adapter_.emplace(*spec_, open_adapter(adapter));
  const DType type = plain_type(files_);
  for (const UnitSpec& unit : spec_->units)
    for (const ParamSpec& p : unit.params) {
      if (!spec_->in_model(p)) continue;
      if (p.role == Role::value_head) {
        const io::TensorLocation* whole = replacement(p);
        tensors_.push_back({&p, p.name, p.shape, type, whole != nullptr ? *whole : files_.at(p.name)});
        continue;
      }
      if (p.is_quantized()) {
        std::int64_t row = 0;
        for (const FileTensor& part : p.in_files()) {
          tensors_.push_back({&p, part.name, part.shape, type, {}, row});
          row += p.packed.rows;
        }
        continue;
      }
      for (const Source& source : sources_of(p, files_)) {
        const io::TensorEntry& entry = *source.at.entry;
        const bool untied_head = spec_->untied && p.path == kLmHead;  // its source is the embeddings' tensor
        tensors_.push_back(
            {&p, untied_head ? p.name : entry.name, entry.shape, entry.dtype, source.at, source.begin / p.shape.back()});
      }
    }
}

MergedModel::~MergedModel() = default;

const WeightChange* MergedModel::change_of(const ParamSpec& param) {
  if (std::exchange(current_, &param) != &param) change_ = adapter_ ? adapter_->find(param) : nullptr;
  return change_.get();
}

const io::TensorLocation* MergedModel::replacement(const ParamSpec& param) const {
  return adapter_ ? adapter_->replacement(param) : nullptr;
}

bool MergedModel::changes(const ParamSpec& param) const {
  return adapter_ && adapter_->changes(param);
}

}  // namespace qft::model
