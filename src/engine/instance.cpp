#include "qft/engine/instance.h"

#include "qft/comm/exchange.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/core/random_id.h"
#include "qft/device/memory.h"
#include "qft/device/scalar_type.h"
#include "qft/io/file.h"
#include "qft/io/model_files.h"
#include "qft/io/storage.h"
#include "qft/model/pissa.h"
#include "qft/model/spec.h"
#include "qft/parallel/optimizer_param.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include <ATen/ops/empty.h>
#include <fmt/ranges.h>

namespace qft::engine {
namespace {

namespace fs = std::filesystem;

/// A file of initial factors (model/pissa.h) that each rank can open while this object lives; open handles stay valid. Only rank
/// 0 may see output_dir, so the other ranks copy the file to their node's temporary directory.
class PissaStart {
 public:
  /// `resumed`: the checkpoint that training resumes from, as rank 0 sees it; empty: computes new factors from the weights of
  /// `files`. Collective; throws Error on all ranks.
  PissaStart(const model::ModelSpec& spec, const io::ModelFiles& files, std::uint64_t seed, const std::filesystem::path& resumed,
             comm::Communicator& comm);

  std::unique_ptr<io::TensorFile> open() const;

 private:
  struct TemporaryFile {
    ~TemporaryFile();
    std::filesystem::path file;
  };
  TemporaryFile temporary_;
  std::filesystem::path file_;
};

/// Copies rank 0's file `from` to `to` on all other ranks. Collective.
void copy_to_others(const fs::path& from, const fs::path& to, comm::Communicator& comm) {
  constexpr std::uint64_t kPiece = 4 << 20;
  std::optional<io::File> source;
  std::unique_ptr<io::WritableFile> copy;
  std::int64_t size = 0;
  comm::agreed(comm, [&] {
    if (comm.rank() == 0)
      size = static_cast<std::int64_t>(source.emplace(io::File::open_read(from)).size());
    else
      copy = io::posix_storage().create(to);
  });
  const auto bytes = static_cast<std::uint64_t>(comm::broadcast_value(comm, size));
  std::exception_ptr failure;  // keep broadcasting after a failure: the other ranks wait for each piece
  std::vector<char> piece(std::min(bytes, kPiece));
  for (std::uint64_t begin = 0; begin < bytes; begin += kPiece) {
    const std::uint64_t count = std::min(kPiece, bytes - begin);
    try {
      if (source && !failure) source->pread(begin, piece.data(), count);
    } catch (...) {
      failure = std::current_exception();
    }
    comm.host().broadcast(piece.data(), count, DType::u8, 0);
    try {
      if (copy && !failure) copy->append(piece.data(), count);
    } catch (...) {
      failure = std::current_exception();
    }
  }
  comm::agreed(comm, [&] {
    if (failure) std::rethrow_exception(failure);
    if (copy) copy->close();
  });
}

PissaStart::TemporaryFile::~TemporaryFile() {
  std::error_code ignored;
  if (!file.empty()) fs::remove(file, ignored);
}

PissaStart::PissaStart(const model::ModelSpec& spec, const io::ModelFiles& files, std::uint64_t seed, const fs::path& resumed,
                       comm::Communicator& comm) {
  const bool first = comm.rank() == 0;
  comm::agreed(comm, [&] {
    const fs::path own = fs::temp_directory_path() / fmt::format("qft-{}-{}", random_hex(), model::kPissaInitFile);
    file_ = first && !resumed.empty() ? resumed / model::kPissaInitFile : own;
    if (file_ == own) temporary_.file = own;
    if (first && !resumed.empty()) model::open_initial_factors(file_);
  });
  if (resumed.empty()) {
    if (first)
      log::info("PiSSA: decomposing the weights, {}", spec.adapter.lora.pissa->iterations < 0
                                                          ? std::string("exactly (pissa_iter: 16 is faster)")
                                                          : fmt::format("by {} iterations", spec.adapter.lora.pissa->iterations));
    model::write_initial_factors(spec, files, seed, io::posix_storage(), file_, comm);
  }
  copy_to_others(file_, file_, comm);
}

std::unique_ptr<io::TensorFile> PissaStart::open() const {
  return model::open_initial_factors(file_);
}

/// Returns the part of a parameter's boxes that lies in `flat`, a part of its unit's buffer.
model::Shard shard_of(const model::ParamSpec& p, const model::Shard& flat) {
  const std::int64_t first = std::max(p.offset, flat.begin), last = std::min(p.offset + p.numel, flat.end());
  if (first >= last) return {flat.values.narrow(0, 0, 0), 0};
  return {flat.values.narrow(0, first - flat.begin, last - first), first - p.offset};
}

}  // namespace

std::unique_ptr<Instance> Instance::build(plan::RunPlan run, comm::Communicator& comm, c10::Device device) {
  std::unique_ptr<Instance> self(new Instance(std::move(run), comm, device));
  Instance& m = *self;
  const plan::RunPlan& p = m.run_;
  const parallel::Layout& layout = m.layout_;
  const parallel::Groups& groups = layout.groups();
  comm::Communicator& slices = groups.slices();  // in this order on all ranks
  comm::Communicator& copies = groups.copies();
  const model::RowSharing tensor(groups.tensor()), context(groups.context());
  QFT_ASSERT(m.spec_.share.rank == tensor.rank() && m.spec_.share.ranks == tensor.ranks(),
             "a model for rank {} of {} that share matrices, on rank {} of {}", m.spec_.share.rank, m.spec_.share.ranks,
             tensor.rank(), tensor.ranks());
  QFT_ASSERT(m.spec_.context.rank == context.rank() && m.spec_.context.ranks == context.ranks(),
             "a model for rank {} of {} that share sequences, on rank {} of {}", m.spec_.context.rank, m.spec_.context.ranks,
             context.rank(), context.ranks());
  m.transformer_ = std::make_unique<model::Transformer>(m.spec_, p.precision.compute, device, tensor, context);
  m.transformer_->set_logit_rows(p.schedule.head_rows);
  m.store_ = layout.strategy().sharded()
                 ? parallel::make_sharded_store(m.spec_, p.precision, device, layout.strategy(), layout.offload(), slices, copies,
                                                p.training, tensor)
                 : parallel::make_replicated_store(m.spec_, p.precision, device, copies, p.training, p.sharding.reduction_order,
                                                   p.sharding.bucket_bytes, tensor);
  m.optimizer_index_.assign(m.spec_.units.size(), -1);
  if (p.training) {
    int next = 0;
    for (std::size_t u = 0; u < m.spec_.units.size(); ++u)
      if (m.spec_.units[u].trainable_numel > 0) m.optimizer_index_[u] = next++;
    m.optimizer_ = std::make_unique<optim::Optimizer>(*p.rule, m.store_->owned(), p.hyper, p.precision, &groups.owners(),
                                                      groups.mesh().degree(comm::Axis::tensor));
  }
  m.executor_ = std::make_unique<parallel::Executor>(*m.transformer_, *m.store_, groups, p.schedule, p.random, p.diagnostics);
  return self;
}

Instance::Instance(plan::RunPlan run, comm::Communicator& comm, c10::Device device)
    : run_(std::move(run)), spec_(*run_.spec), layout_(comm, device, run_.sharding) {
  for (model::UnitSpec& unit : spec_.units)
    for (model::ParamSpec& p : unit.params) p.first_holder = parallel::is_first_holder(p, groups().mesh());
}

namespace {

void load_value_head(const ModelSource& source, const model::ModelSpec& spec, std::uint64_t seed,
                     const model::ParamAccess& access) {
  const char* what = spec.head.classifies() ? "classifier's head" : "value head";
  if (const auto file = head_file(source, spec); !file.path.empty()) {
    log::info("{}: '{}'", what, file.path.string());
    return model::load_value_head(spec, file, access);
  }
  log::info("{}: starts random (there is no {} {} the model or its adapter)", what,
            spec.head.classifies() ? model::kScore : io::kValueHeadFiles[0], spec.head.classifies() ? "in" : "beside");
  model::init_value_head(spec, seed, access);
}

/// Warns of unused tensors, counted by name prefix.
void warn_of_unused(const model::ModelSpec& spec, const std::vector<std::string>& names) {
  std::vector<std::string> words;
  for (const std::string& prefix : spec.config.other_prefixes)
    if (const auto count = std::ranges::count_if(names, [&](const std::string& name) { return name.starts_with(prefix); });
        count > 0)
      words.push_back(fmt::format("{} {}", count, prefix));
  if (words.empty()) return;
  log::warn_once(fmt::format(
      "the model's files have tensors that are not used ({}): vision (model.visual.), multi-token prediction "
      "(mtp.), or the lm_head of a model that gives scores, classes or vectors; models that this run writes and exports of it "
      "keep them unchanged, except a classifier's lm_head",
      fmt::join(words, ", ")));
}

/// Loads the base model's weights, then reads or initialises the adapter's. Returns the bytes read.
std::int64_t load_weights(const ModelSource& source, Instance& instance, const io::TensorFile* initial) {
  const model::ModelSpec& spec = instance.spec();
  const std::uint64_t seed = instance.plan().random.seed;
  const auto access = [&](int unit, const model::ParamSpec& p) { return instance.param(unit, p); };
  const std::int64_t bytes = model::load_base_weights(spec, source.files(), access);
  warn_of_unused(spec, source.files().names());
  if (source.live())
    model::load_adapter(spec, source.live()->dir, access);
  else if (initial != nullptr)
    model::load_initial_factors(spec, *initial, access);
  else if (spec.adapter.enabled())
    model::init_adapter(spec, seed, access);
  if (spec.head.has_linear()) load_value_head(source, spec, seed, access);
  return bytes;
}

}  // namespace

void Instance::init_magnitudes() {
  settle();
  for (int u = 0; u < spec().num_units(); ++u) {
    const model::UnitSpec& unit = spec().units[static_cast<std::size_t>(u)];
    if (unit.derived_numel == 0) continue;
    const at::Tensor scales = store_->acquire(u).derived;
    for (const model::ParamSpec& p : unit.params)
      if (p.role == model::Role::magnitude) model::init_magnitude(p, scales, param(u, p));
    store_->release(u);
  }
  publish();
}

std::unique_ptr<Instance> Instance::load(plan::RunPlan run, const ModelSource& source, comm::Communicator& comm,
                                         c10::Device device, const std::filesystem::path& resumed) {
  const auto start = std::chrono::steady_clock::now();
  auto self = build(std::move(run), comm, device);
  const model::ModelSpec& spec = self->spec();
  std::optional<PissaStart> pissa;
  if (spec.adapter.lora.pissa) pissa.emplace(spec, source.files(), self->run_.random.seed, resumed, comm);
  comm::agreed(comm, [&] {
    std::shared_ptr<const io::TensorFile> initial;
    if (pissa) {
      initial = pissa->open();
      model::subtract_initial_factors(source.files(), spec, pissa->open());
    }
    self->report_.bytes_read = load_weights(source, *self, initial.get());
    if (comm.rank() == 0) self->initial_factors_ = std::move(initial);
  });
  const auto packed = [&](int unit) { return self->store_->resident_shard(unit, model::Part::quantized); };
  self->report_.bytes_read += model::load_quantized_weights(spec, source.files(), packed, comm);
  self->publish();
  if (spec.adapter.lora.dora && !source.live()) self->init_magnitudes();
  self->report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  device::release_unused();  // frees what reading files took
  return self;
}

model::MicroInput Instance::input(const loader::MicroBatch& batch) const {
  model::MicroInput in = model::MicroInput::build(batch.tokens, batch.cu_seqlens, batch.label_positions, batch.samples,
                                                  transformer_->device(), batch.item_offsets, batch.shared);
  in.set_columns(batch.columns);
  if (optimizer_)
    in.routing = model::Routing::build(spec().config, in.sequences, transformer_->statistics_dtype(), transformer_->device(),
                                       transformer_->tensor(), transformer_->context());
  in.keep_rows_of(transformer_->context());
  return in;
}

parallel::ActionList Instance::training_list(int micro_batches, int max_micro_batches, double seconds) const {
  const parallel::Schedule& schedule = run_.schedule;
  const int votes = parallel::groups_per_vote(seconds, parallel::groups_of(schedule, max_micro_batches));
  return with_prefetches(parallel::training_actions(spec_, schedule, {micro_batches, max_micro_batches, votes}));
}

parallel::ActionList Instance::evaluation_list(int micro_batches, int max_micro_batches) const {
  parallel::Schedule schedule = run_.schedule;
  if (!run_.training) schedule.group = std::max(1, max_micro_batches);
  return with_prefetches(parallel::evaluation_actions(spec_, schedule, {micro_batches, max_micro_batches}));
}

parallel::ActionList Instance::with_prefetches(const parallel::ActionList& list) const {
  return parallel::insert_prefetches(list, store_->gathered_bytes(), run_.sharding.prefetch_budget);
}

void Instance::update(double learning_rate, double grad_scale) {
  executor_->without_waits([] { return std::string("the optimizer"); },
                           [&] {
                             optimizer_->step(learning_rate, grad_scale);
                             store_->broadcast_updates();
                           });
}

model::Shard Instance::param(int unit, const model::ParamSpec& param) const {
  QFT_ASSERT(!param.is_quantized(), "'{}' is quantised: its elements exist only during use", param.name);
  const int index = optimizer_index_.at(static_cast<std::size_t>(unit));
  if (!param.trainable || index < 0) return shard_of(param, store_->resident_shard(unit, param.part()));
  const auto i = static_cast<std::size_t>(index);
  return shard_of(param, {optimizer_->master(i), optimizer_->begin(i)});
}

model::Shard Instance::grad(int unit, const model::ParamSpec& param) const {
  const auto index = static_cast<std::size_t>(optimizer_index_.at(static_cast<std::size_t>(unit)));
  const optim::FlatParams owned = store_->owned().at(index);
  return shard_of(param, {owned.grads, owned.begin});
}

std::vector<optim::HeldState> Instance::states(int unit, const model::ParamSpec& param) const {
  const int index = optimizer_index_.at(static_cast<std::size_t>(unit));
  QFT_ASSERT(index >= 0 && param.trainable, "'{}' has no optimizer state", param.name);
  return optimizer_->held_states(static_cast<std::size_t>(index), param.offset);
}

void Instance::settle() {
  store_->settle();
}

void Instance::publish() {
  if (optimizer_) optimizer_->refresh_copies();
  store_->broadcast_updates();
}

at::Tensor Instance::master_buffer() const {
  comm::Communicator& slices = groups().slices();
  std::int64_t largest = 0;
  for (const int i : optimizer_index_)
    if (i >= 0) largest = std::max(largest, optimizer_->master(static_cast<std::size_t>(i)).numel() * slices.size());
  if (slices.size() == 1 || largest == 0) return {};
  return at::empty({largest}, optimizer_->master(0).options());
}

at::Tensor Instance::whole_master(int unit, const at::Tensor& room) const {
  const auto i = static_cast<std::size_t>(optimizer_index_.at(static_cast<std::size_t>(unit)));
  const at::Tensor mine = optimizer_->master(i);
  comm::Communicator& slices = groups().slices();
  if (slices.size() == 1) return mine;
  const at::Tensor whole = room.defined() ? room : at::empty({mine.numel() * slices.size()}, mine.options());
  QFT_ASSERT(whole.numel() >= mine.numel() * slices.size(), "room for {} elements", whole.numel());
  comm::Communicator& group = mine.is_cpu() ? slices.host() : slices;  // offloaded masters are in host memory
  group.all_gather(mine.data_ptr(), whole.data_ptr(), static_cast<std::size_t>(mine.numel()),
                   device::dtype_of(mine.scalar_type()));
  return whole.narrow(0, 0, spec().units[static_cast<std::size_t>(unit)].trainable_numel);
}

void log_layout(const config::RunConfig& config, const Instance& instance) {
  std::string words = parallel::describe(instance.plan().sharding);
  if (const std::string& reason = instance.plan().reason; !reason.empty())
    words += fmt::format("; by strategy {}: {}", config.parallel.strategy, reason);
  if (instance.group() > 1)
    words += fmt::format("; breadth-first: up to {} micro-batches pass a block together", instance.group());
  log::info("{:<10} {}", "strategy", words);
}

}  // namespace qft::engine
