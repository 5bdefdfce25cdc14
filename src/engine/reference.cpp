#include "qft/engine/reference.h"

#include "qft/comm/exchange.h"
#include "qft/core/convert.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/engine/objectives.h"
#include "qft/tokenizer/tokenizer.h"

#include <utility>

#include <c10/core/ScalarType.h>
#include <fmt/ranges.h>

namespace qft::engine {
namespace {

using config::RunConfig;

bool names_reference(const RunConfig& config) {
  return !config.finetuning.ref_model.empty() || !config.finetuning.ref_model_adapters.empty();
}

/// True if the objective reads sums of log-probabilities that are computed before the first step.
bool is_stored(const RunConfig& config, const ObjectiveRow& row, Use use) {
  return use == Use::training && config.finetuning.precompute_ref_log_probs && !row.reads(columns::kReferenceRows);
}

/// The loss compares log-probabilities of equal token ids.
void require_same_vocabulary(const RunConfig& config, const model::ModelConfig& policy, const RunConfig& own,
                             const model::ModelConfig& theirs) {
  if (policy.vocab_size != theirs.vocab_size)
    fail_config("ref_model '{}' has a vocabulary of {} tokens, but the model '{}' has {}: a reference must read the same tokens",
                own.model.model_name_or_path, theirs.vocab_size, config.model.model_name_or_path, policy.vocab_size);
  if (!std::filesystem::exists(std::filesystem::path(own.model_path()) / "tokenizer.json")) return;
  const auto ours = tokenizer::Tokenizer::load(config.tokenizer_path())->hash();
  if (const auto other = tokenizer::Tokenizer::load(own.model_path())->hash(); other != ours)
    fail_config(
        "ref_model '{}' has another tokenizer (hash {}) than '{}' ({}): it would read other tokens from the same data; use a "
        "reference of the same family",
        own.model.model_name_or_path, other, config.tokenizer_path(), ours);
}

}  // namespace

bool has_reference_lane(const RunConfig& config, const model::AdapterConfig& adapter, Use use) {
  const ObjectiveRow& row = objective_of(config);
  if (!row.reads_reference() || is_stored(config, row, use) || names_reference(config)) return false;
  // PiSSA's base weights without the adapter are not the original model.
  return adapter.enabled() && !adapter.lora.pissa && adapter.targets().modules_to_save.empty();
}

bool has_separate_reference(const RunConfig& config, const model::AdapterConfig& adapter, Use use) {
  const ReferenceKind kind = reference_of(config, adapter, use);
  return kind == ReferenceKind::model || kind == ReferenceKind::file;
}

ReferenceKind reference_of(const RunConfig& config, const model::AdapterConfig& adapter, Use use) {
  const ObjectiveRow& row = objective_of(config);
  if (!row.reads_reference()) return ReferenceKind::none;
  if (has_reference_lane(config, adapter, use)) return ReferenceKind::lane;
  if (is_stored(config, row, use)) return ReferenceKind::file;
  if (names_reference(config) || use == Use::training || adapter.enabled()) return ReferenceKind::model;
  fail_config(
      "{} compares the model with a reference, but there is no adapter to switch off and no ref_model: "
      "give adapter_name_or_path, or ref_model (the model that training started from)",
      fmt::format("{} {}", row.name == config.finetuning.stage ? "stage" : "the loss", row.name));
}

RunConfig reference_config(const RunConfig& config, Use use) {
  RunConfig own = config;
  if (names_reference(config)) {
    if (!config.finetuning.ref_model.empty()) own.model.model_name_or_path = config.finetuning.ref_model;
    own.model.adapter_name_or_path = config.finetuning.ref_model_adapters;
    own.model.adapter_folder.clear();
  } else {
    own.model.adapter_name_or_path.resize(adapter_paths(config, use).merged.size());
    own.finetuning.ref_model = own.model.model_name_or_path;  // the reference has no reference
  }
  if (use == Use::training) {
    own.model.infer_dtype = torch_name(config.compute_dtype());
    own.given.try_emplace("cutoff_len", "cutoff_len");  // rope_scaling depends on cutoff_len, as in the trained model
  }
  return own;
}

std::unique_ptr<ReferenceModel> ReferenceModel::load(const RunConfig& config, const ModelSource& policy, comm::Communicator& comm,
                                                     c10::Device device, const parallel::Sharding* sharding,
                                                     const plan::Batches& batches) {
  RunConfig own;
  std::shared_ptr<const ModelSource> source = policy.reference();
  comm::agreed(comm, [&] {
    own = reference_config(config, policy.use());
    if (!source) source = std::make_shared<const ModelSource>(ModelSource::read(own, Use::inference));
    require_same_vocabulary(config, policy.own_config(), own, source->own_config());
  });
  if (sharding != nullptr) {
    own.parallel.strategy = sharding->strategy.name;
    if (sharding->offload.weights) own.parallel.offload_param = "cpu";
  }
  auto instance = Instance::load(resolve_run(own, *source, comm, device, batches), *source, comm, device);
  if (comm.rank() == 0)
    log::info(
        "reference: model '{}'{}, frozen, {}, {}", own.model.model_name_or_path,
        own.model.adapter_name_or_path.empty() ? "" : fmt::format(" with adapter '{}'", own.model.adapter_name_or_path.back()),
        c10::toString(instance->precision().compute), parallel::describe(instance->plan().sharding));
  std::unique_ptr<ReferenceModel> reference(new ReferenceModel(std::move(instance)));
  if (objective_of(config).reads(columns::kReferenceRows)) reference->hold_head();
  return reference;
}

void ReferenceModel::hold_head() {
  const model::ModelSpec& spec = instance_->spec();
  const auto acquired = [&](int unit) -> const model::UnitBuffers& { return instance_->weights().acquire(unit); };
  const model::UnitBuffers& head = acquired(spec.head_unit());
  head_ = model::bind_head(spec, head, spec.ties_head() ? acquired(0) : model::UnitBuffers{}).table.value;
}

void ReferenceModel::fill(const SourceBatch& batch, std::span<model::MicroInput> micros) {
  QFT_ASSERT(batch.batches.size() == micros.size(), "{} micro-batches, {} inputs", batch.batches.size(), micros.size());
  const auto list = instance_->evaluation_list(static_cast<int>(micros.size()), static_cast<int>(batch.rounds));
  if (head_.defined()) {
    const auto rows = instance_->executor().head_rows(list, micros);
    for (std::size_t i = 0; i < micros.size(); ++i)
      micros[i].set_column(columns::kReferenceRows, {.space = IndexSpace::label, .values = rows[i], .head = head_});
    return;
  }
  std::size_t next = 0;
  instance_->executor().evaluate(list, micros, [&](const parallel::Logprobs& logprobs) {
    const at::Tensor sums = parallel::sequence_sums(micros[next], logprobs.policy);
    micros[next].set_column(columns::kReference, {.space = IndexSpace::sequence, .values = sums});
    ++next;
  });
}

std::int64_t ReferenceModel::bytes() const {
  const parallel::StoreMemory store = instance_->weights().memory();
  const parallel::ExecutorMemory executor = instance_->executor().memory();
  return store.weights + store.gathered_peak + executor.activations + executor.buffers;
}

std::unique_ptr<ReferenceModel> load_reference_beside(const RunConfig& config, const ModelSource& source, const Instance& policy,
                                                      comm::Communicator& comm, c10::Device device) {
  bool wanted = false;
  comm::agreed(comm, [&] { wanted = reference_of(config, policy.spec().adapter, source.use()) == ReferenceKind::model; });
  return wanted ? ReferenceModel::load(config, source, comm, device, &policy.plan().sharding) : nullptr;
}

}  // namespace qft::engine
