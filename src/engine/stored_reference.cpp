#include "qft/engine/stored_reference.h"

#include "qft/comm/exchange.h"
#include "qft/core/clock.h"
#include "qft/core/error.h"
#include "qft/core/hash.h"
#include "qft/core/log.h"
#include "qft/core/progress.h"
#include "qft/core/units.h"
#include "qft/io/hdf5.h"
#include "qft/io/storage.h"
#include "qft/job/stop_signal.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <span>
#include <string_view>
#include <unistd.h>

#include "adapter_choice.h"

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

/// Scores this rank's micro-batches. The lead rank of each data rank notes their sums in `values`.
void score_round(ReferenceModel& model, std::span<const loader::MicroBatch> batches, std::int64_t rounds,
                 std::vector<double>& values) {
  std::vector<model::MicroInput> inputs;
  for (const loader::MicroBatch& batch : batches) inputs.push_back(model.input(batch));
  model.fill({batches, rounds}, inputs);
  if (!model.groups().is_lead()) return;
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
  const std::int64_t data_ranks = model.groups().data().size();
  bool ends = false;
  for (std::int64_t done = 0; done < rest.rounds() && !ends;) {
    const std::int64_t rounds = std::min(rest.batches_per_acquire(), rest.rounds() - done);
    score_round(model, rest.next(rounds), rounds, scored.sums.values);
    done += rounds;
    scored.sums.items = std::min(all, before + done * data_ranks * rest.micro_items());
    bar.update(done);
    ends = comm::all_reduce_value<std::int32_t>(comm, asked() ? 1 : 0, comm::ReduceOp::max) != 0;
  }
  // Each value is nonzero on one rank only: earlier ones on rank 0, new ones on the lead ranks. All ranks need all of them.
  model.groups().all().all_reduce(scored.sums.values.data(), scored.sums.values.size(), DType::f64);
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

constexpr std::string_view kFormat = "qft-reference-logprobs";
constexpr std::int64_t kVersion = 1;
constexpr const char* kSums = "sums";
constexpr const char* kRecomputeHint = "remove the file to compute the reference's log-probabilities again";

/// The attributes of an identity, with a description for messages.
struct IdentityField {
  const char* name;
  std::string ReferenceIdentity::* value;
  const char* description;
};
constexpr std::array<IdentityField, 5> kIdentityFields = {{
    {"pack", &ReferenceIdentity::pack, "the pack's fingerprint"},
    {"model", &ReferenceIdentity::model, "a hash of the reference's config.json and weights"},
    {"adapter", &ReferenceIdentity::adapter, "a hash of the reference's adapters"},
    {"compute", &ReferenceIdentity::compute, "the type that the reference computes in"},
    {"quantization", &ReferenceIdentity::quantization, "how the reference is quantised"},
}};

std::int64_t checksum_of(const ReferenceSums& sums) {
  const std::uint32_t items = crc32c(&sums.items, sizeof sums.items);
  return crc32c(sums.values.data(), sums.values.size() * sizeof(double), items);
}

void require_identity(const io::h5::File& file, const ReferenceIdentity& identity) {
  for (const IdentityField& part : kIdentityFields)
    if (const std::string there = file.get_string(part.name); there != identity.*part.value)
      fail_config("'{}' has log-probabilities of another {} ({}): {} there, {} in this run. Undo the change, or {}",
                  file.path().string(), part.name, part.description, there, identity.*part.value, kRecomputeHint);
}

ReferenceSums read_sums(const io::h5::File& file, std::int64_t items, std::int64_t sequences) {
  const io::h5::Dataset dataset = file.dataset(kSums);
  require(dataset.type() == io::h5::Type::f64 && dataset.elements() == static_cast<std::uint64_t>(sequences),
          "it has {} values of type {}, but the pack has {} sequences", dataset.elements(), io::h5::name_of(dataset.type()),
          sequences);
  ReferenceSums sums{file.get_int("items"), dataset.read_all<double>()};
  require(sums.items >= 0 && sums.items <= items, "it has {} items, but the pack has {}", sums.items, items);
  const std::int64_t stored = file.get_int("crc32c"), found = checksum_of(sums);
  require(stored == found, "CRC32C {:08x} stored, {:08x} found", stored, found);
  return sums;
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
    RemainingItems rest(config, scored, data_place(config, comm));
    if (!model) model = ReferenceModel::load(config, source, comm, device, nullptr, rest.bounds());
    complete(scored, rest, *model, comm, asked);
  }
  References references;
  references.training = std::make_shared<StoredReference>(std::move(packs.front().sums.values));
  references.evaluation =
      packs.size() == 1 ? references.training : std::make_shared<StoredReference>(std::move(packs.back().sums.values));
  return references;
}

ReferenceIdentity identity_of(const config::RunConfig& own, const ModelSource& source, const std::string& pack) {
  const ModelIdentity model = model_identity_of(own, source);
  return {pack, model.model, model.adapter, own.model.infer_dtype, model.quantization};
}

fs::path reference_path(const fs::path& pack) {
  return pack.string() + ".reference";
}

void write_reference(const fs::path& path, const ReferenceIdentity& identity, const ReferenceSums& sums) {
  for (std::size_t s = 0; s < sums.values.size(); ++s)
    require(std::isfinite(sums.values[s]),
            "the reference's log-probability of sequence {} of the pack is {}: is the reference model complete?", s,
            sums.values[s]);
  io::Storage& storage = io::posix_storage();
  const fs::path temp = io::CommitDir::temp_path(path, std::to_string(getpid()));
  try {
    io::h5::File file = io::h5::File::create(temp);
    file.set_string("format", kFormat);
    file.set_int("format_version", kVersion);
    for (const IdentityField& part : kIdentityFields) file.set_string(part.name, identity.*part.value);
    file.set_int("items", sums.items);
    file.set_int("crc32c", checksum_of(sums));
    file.create_dataset<double>(kSums, sums.values.size()).write<double>(0, std::span<const double>(sums.values));
    file.close();
    io::sync_file(temp);
    storage.rename(temp, path);
    storage.sync_directory(path.parent_path());
  } catch (const Error& e) {
    std::error_code ignored;
    fs::remove(temp, ignored);
    fail("cannot write the reference's log-probabilities beside the pack, to '{}': {}", path.string(), e.what());
  }
}

std::optional<ReferenceSums> read_reference(const fs::path& path, const ReferenceIdentity& identity, std::int64_t items,
                                            std::int64_t sequences) {
  if (!fs::exists(path)) return {};
  try {
    const io::h5::File file = io::h5::File::open(path);
    require(file.has_attribute("format") && file.get_string("format") == kFormat, "it is another kind of file");
    const std::int64_t version = file.get_int("format_version");
    require(version == kVersion, "it has format {}, but this program reads {}", version, kVersion);
    require_identity(file, identity);
    return read_sums(file, items, sequences);
  } catch (const ConfigError&) {
    throw;
  } catch (const Error& e) {
    fail("'{}' cannot be used: {}; {}", path.string(), e.what(), kRecomputeHint);
  }
}

}  // namespace qft::engine
