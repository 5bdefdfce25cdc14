#include "qft/engine/stored_reference.h"

#include "qft/comm/exchange.h"
#include "qft/core/clock.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/core/progress.h"
#include "qft/core/units.h"
#include "qft/job/stop_signal.h"

#include <algorithm>
#include <numeric>

#include "adapter_choice.h"
#include "reference_file.h"

namespace qft::engine {
namespace {

namespace fs = std::filesystem;

/// A pack of the run and its known log-probabilities.
struct PackScores {
  std::shared_ptr<const pack::PackReader> pack;
  fs::path path;                    ///< the .reference file
  ReferenceIdentity identity = {};  ///< rank 0's
  ReferenceSums sums = {};          ///< values only on rank 0
  bool whole() const { return sums.items == pack->num_items(); }
};

/// Opens a pack's scores. Rank 0 reads the file. Collective.
PackScores open(const config::RunConfig& config, const ModelSource& reference, std::shared_ptr<const pack::PackReader> pack,
                pack::CorpusPart part, comm::Communicator& comm) {
  PackScores scored{std::move(pack), reference_path(pack_path(config, part))};
  comm::agreed(comm, [&] {
    if (comm.rank() != 0) return;
    scored.identity = identity_of(reference_config(config, Use::training), reference, scored.pack->fingerprint());
    if (auto found = read_reference(scored.path, scored.identity, scored.pack->num_items(), scored.pack->num_sequences()))
      scored.sums = std::move(*found);
  });
  scored.sums.items = comm::broadcast_value(comm, scored.sums.items);
  scored.sums.values.resize(static_cast<std::size_t>(scored.pack->num_sequences()));
  return scored;
}

/// Loads the items without known log-probabilities, in the pack's order.
class RemainingItems {
 public:
  RemainingItems(const config::RunConfig& config, const PackScores& scored, const comm::Place& data)
      : micro_items_(config.training.per_device_train_batch_size),
        batches_per_acquire_(std::max<std::int64_t>(1, config.training.gradient_accumulation_steps)),
        share_prompts_(config.unshared_prompts_reason().empty()) {
    const std::int64_t first = scored.sums.items;
    auto items = std::make_shared<std::vector<std::int64_t>>(static_cast<std::size_t>(scored.pack->num_items() - first));
    std::iota(items->begin(), items->end(), first);
    loader_ = std::make_unique<loader::EvalLoader>(scored.pack, std::move(items), micro_items_, data.rank, data.size,
                                                   /*max_items=*/0, share_prompts_);
  }
  std::int64_t rounds() const { return loader_->max_micro_batches(); }
  std::int64_t micro_items() const { return micro_items_; }
  std::int64_t batches_per_acquire() const { return std::min(batches_per_acquire_, rounds()); }
  plan::Batches bounds() const {
    const std::int64_t tokens = loader_->max_micro_batch_tokens();
    return {.shape = {.tokens = tokens, .expanded = share_prompts_ ? tokens : 0}, .max_micro_batches = batches_per_acquire()};
  }
  /// Returns this rank's micro-batches of the next `rounds` rounds.
  std::vector<loader::MicroBatch> next(std::int64_t rounds) {
    std::vector<loader::MicroBatch> batches;
    for (std::int64_t r = 0; r < rounds; ++r)
      if (loader::MicroBatch batch = loader_->next().value(); !batch.tokens.empty()) batches.push_back(std::move(batch));
    return batches;
  }

 private:
  std::int64_t micro_items_;          ///< items of a micro-batch
  std::int64_t batches_per_acquire_;  ///< micro-batches per acquire of a block
  bool share_prompts_;                ///< pairs share the rows of their prompt
  std::unique_ptr<loader::EvalLoader> loader_;
};

void score_round(ReferenceModel& model, std::span<const loader::MicroBatch> batches, std::int64_t rounds,
                 std::vector<double>& values) {
  std::vector<model::MicroInput> inputs;
  for (const loader::MicroBatch& batch : batches) inputs.push_back(model.input(batch));
  model.fill({batches, rounds}, inputs);
  for (std::size_t b = 0; b < batches.size(); ++b) {
    const at::Tensor sums = inputs[b].columns.at(columns::kReference).values.cpu();
    for (std::size_t s = 0; s < batches[b].samples.size(); ++s)
      values.at(static_cast<std::size_t>(batches[b].samples[s])) = sums.const_data_ptr<double>()[s];
  }
}

/// Computes the missing sums until done or asked to end, and writes them.
void complete(PackScores& scored, RemainingItems& rest, ReferenceModel& model, comm::Communicator& comm,
              const StopRequested& asked) {
  const double started = steady_seconds();
  const std::int64_t before = scored.sums.items, all = scored.pack->num_items();
  Progress bar("reference", rest.rounds(), comm.rank() == 0);
  comm::Communicator& data = model.groups().data();
  bool ends = false;
  for (std::int64_t done = 0; done < rest.rounds() && !ends;) {
    const std::int64_t rounds = std::min(rest.batches_per_acquire(), rest.rounds() - done);
    score_round(model, rest.next(rounds), rounds, scored.sums.values);
    done += rounds;
    scored.sums.items = std::min(all, before + done * data.size() * rest.micro_items());
    bar.update(done);
    ends = comm::all_reduce_value<std::int32_t>(comm, asked() ? 1 : 0, comm::ReduceOp::max) != 0;
  }
  // each value is nonzero on one data rank only
  data.all_reduce(scored.sums.values.data(), scored.sums.values.size(), DType::f64);
  comm::agreed(comm, [&] {
    if (comm.rank() != 0) return;
    write_reference(scored.path, scored.identity, scored.sums);
    bar.clear();
    log::info("reference: log-probabilities of {} items in {}, kept in '{}'", scored.sums.items - before,
              format_duration(steady_seconds() - started), scored.path.string());
  });
  if (ends)
    throw job::Stopped(fmt::format(
        "stopped on request before the first step: '{}' has the reference's log-probabilities of {} of {} items, and the "
        "next run continues from there; submit the job again",
        scored.path.string(), scored.sums.items, all));
}

}  // namespace

void StoredReference::fill(const SourceBatch& batch, std::span<model::MicroInput> micros) {
  QFT_ASSERT(batch.batches.size() == micros.size(), "{} micro-batches, {} inputs", batch.batches.size(), micros.size());
  for (std::size_t b = 0; b < micros.size(); ++b) {
    Column column{IndexSpace::sequence};
    for (const std::int64_t sample : batch.batches[b].samples)
      column.values.push_back(sums_.at(static_cast<std::size_t>(sample)));
    micros[b].set_columns({{std::string(columns::kReference), std::move(column)}});
  }
}

References stored_references(const config::RunConfig& config, const ModelSource& source, const TrainingData& data,
                             comm::Communicator& comm, c10::Device device, const StopRequested& asked) {
  bool wanted = false;
  comm::agreed(comm, [&] { wanted = reference_of(config, adapter_of(config, source), Use::training) == ReferenceKind::file; });
  if (!wanted) return {};
  const ModelSource& reference = *source.reference();
  std::vector<PackScores> packs = {open(config, reference, data.pack, pack::CorpusPart::train, comm)};
  if (data.eval && data.eval->pack != data.pack)
    packs.push_back(open(config, reference, data.eval->pack, pack::CorpusPart::eval, comm));
  std::unique_ptr<ReferenceModel> model;
  for (PackScores& scored : packs) {
    if (scored.whole()) {
      comm.host().broadcast(scored.sums.values.data(), scored.sums.values.size(), DType::f64, 0);
      if (comm.rank() == 0) log::info("reference: log-probabilities from '{}'", scored.path.string());
      continue;
    }
    RemainingItems rest(config, scored, data_place(comm));
    if (!model) model = ReferenceModel::load(config, source, comm, device, nullptr, rest.bounds());
    complete(scored, rest, *model, comm, asked);
  }
  References references;
  references.training = std::make_shared<StoredReference>(std::move(packs.front().sums.values));
  references.evaluation =
      packs.size() == 1 ? references.training : std::make_shared<StoredReference>(std::move(packs.back().sums.values));
  return references;
}

}  // namespace qft::engine
