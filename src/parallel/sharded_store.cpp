#include "qft/core/error.h"
#include "qft/device/scalar_type.h"
#include "qft/parallel/optimizer_param.h"
#include "qft/parallel/weight_store.h"

#include <deque>
#include <utility>

#include "gathered_unit.h"
#include "tensor_sum.h"
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

namespace qft::parallel {
namespace {

std::int64_t bytes_of(const at::Tensor& t) {
  return t.defined() ? static_cast<std::int64_t>(t.nbytes()) : 0;
}

class ShardedStore final : public WeightStore {
 public:
  ShardedStore(const model::ModelSpec& spec, const optim::Precision& precision, c10::Device device, const Strategy& strategy,
               const Offload& offload, comm::Communicator& shard, comm::Communicator& replicate, bool training,
               const model::RowSharing& tensor)
      : spec_(spec),
        strategy_(strategy),
        offload_(offload),
        shard_(shard),
        replicate_(replicate),
        tensor_(tensor),
        training_(training),
        grad_type_(precision.grad),
        grad_options_(at::TensorOptions().dtype(precision.grad).device(device)),
        transfers_{.copies = device::Stream::make(device), .gathered = {}, .staged = {}, .pool = BlockPool(device)},
        units_(spec.units.size()) {
    QFT_ASSERT(strategy.gradients || replicate.size() == 1, "{} has no replicas of its slices", strategy.name);
    require(!training || spec.num_params(true) > 0, "no parameter is trainable: check finetuning_type and lora_target");
    QFT_ASSERT(strategy.gradients || !offload.optimizer, "{} keeps gradients whole: their owner's part cannot be offloaded",
               strategy.name);
    const auto options = at::TensorOptions().dtype(precision.compute).device(device);
    transfers_.max_staging_bytes = max_staging_bytes(spec, precision.compute);
    const Residency residency{!strategy.weights, offload.weights};
    for (std::size_t u = 0; u < units_.size(); ++u) {
      const auto& unit = spec.units[u];
      units_[u].weights = GatheredUnit(spec, unit, options, shard, tensor, residency, transfers_);
      if (training && unit.trainable_numel > 0) make_gradients(units_[u]);
    }
  }

  /// Waits: a step ends with gathers for the next step in flight.
  ~ShardedStore() override { transfers_.join(); }
  ShardedStore(const ShardedStore&) = delete;
  ShardedStore& operator=(const ShardedStore&) = delete;

  void make_room(int unit) override { at(unit).weights.make_room(); }

  void gather(int unit, GatherPurpose purpose, bool frozen_only) override {
    if (!at(unit).weights.gather(purpose, frozen_only)) deferred_.push_back({unit, purpose, frozen_only});
  }

  const model::UnitBuffers& acquire(int unit) override { return acquire(unit, GatherPurpose::all); }
  const model::UnitBuffers& acquire(int unit, GatherPurpose purpose) override {
    const model::UnitBuffers& buffers = at(unit).weights.acquire(purpose, generations_);
    start_deferred_gathers();
    return buffers;
  }

  void release(int unit) override { at(unit).weights.release(); }

  void gather_experts(int unit, std::span<const std::int64_t> begins) override { at(unit).weights.gather_experts(begins); }
  void verify_experts(int unit, std::span<const std::int64_t> begins) override { at(unit).weights.verify_experts(begins); }

  void start_step(const MicroRange&) override {
    for (Unit& u : units_) {
      if (u.grads.defined()) u.grads.zero_();
      if (u.sum.defined()) u.sum.zero_();
    }
  }

  at::Tensor grads(int unit) override {
    Unit& u = at(unit);
    if (!training_ || u.weights.trainable().empty()) return {};
    if (!u.grads.defined()) {
      u.grads = transfers_.pool.take(u.weights.trainable().division().padded(), grad_options_).zero_();
      grad_bytes_.add(bytes_of(u.grads));
    }
    return u.grads.narrow(0, 0, u.weights.trainable().division().n);
  }

  void reduce(int unit) override {
    Unit& u = at(unit);
    grads(unit);  // a rank without work contributes zeros
    Reduction r{
        &u, strategy_.gradients ? std::exchange(u.grads, {}) : u.grads, {}, {}, {}, device::Event(transfers_.copies.device())};
    r.wide = r.grads;
    if (grad_type_ != wide(grad_type_)) {
      r.wide = transfers_.pool.take(r.grads.numel(), grad_options_.dtype(wide(grad_type_))).copy_(r.grads);
      grad_bytes_.add(bytes_of(r.wide));
    }
    const Division& d = u.weights.trainable().division();
    r.work = shard_.start_reduce_scatter(r.wide.data_ptr(), d.slice_of(r.wide).data_ptr(), static_cast<std::size_t>(d.chunk),
                                         device::dtype_of(r.wide.scalar_type()));
    if (offload_.optimizer) copy_to_host(r);
    reductions_.push_back(std::move(r));
    // Bounds the gradients in flight. The limit depends on the calls only, so it is the same on every rank.
    while (strategy_.gradients && reductions_.size() > kMaxReductionsInFlight) complete_oldest();
  }

  void poll() override {
    for (Reduction& r : reductions_) r.work.test();
    for (Unit& u : units_)
      for (ShardedBuffer* buffer : u.weights.buffers()) buffer->poll();
  }

  void finish_reductions() override {
    while (!reductions_.empty()) complete_oldest();
    if (replicate_.size() > 1) add_up_replicas();
    add_up_terms(spec_, complete_grads(), tensor_);
    agree_on_experts();
    for (Unit& u : units_)
      if (u.owned.defined() && u.sum.defined() && !u.owned.is_same(u.sum)) u.owned.copy_(u.sum);
  }

  void abandon_step() override {
    while (!reductions_.empty()) complete_oldest();
    for (Unit& u : units_) u.weights.drop();
  }

  std::vector<double> local_grad_square_sums() const override {
    CountedGrads counted(units_.size());
    if (replicate_.rank() != 0) return counted.square_sums();  // same slices as replica 0
    for (std::size_t u = 0; u < units_.size(); ++u) {
      const at::Tensor& owned = units_[u].owned;
      if (!owned.defined()) continue;
      const std::int64_t begin = units_[u].weights.trainable().division().chunk * shard_.rank();
      counted.add(u, owned, ranges_in_norm(spec_.units[u], begin, owned.numel()));
    }
    return counted.square_sums();
  }

  std::vector<optim::FlatParams> owned() const override {
    std::vector<optim::FlatParams> all;
    for (std::size_t u = 0; u < units_.size(); ++u) {
      const ShardedBuffer& weights = units_[u].weights.trainable();
      if (!weights.empty())
        all.push_back(owned_params(spec_.units[u], weights.slice(), units_[u].owned, weights.division().chunk * shard_.rank()));
    }
    return all;
  }

  void broadcast_updates() override {
    for (Unit& u : units_) {
      u.weights.changed();
      // Starts gathering the updated weights at once; their next use waits for them.
      if (!strategy_.weights && !offload_.weights) u.weights.trainable().gather();
    }
  }

  void settle() override {
    for (Unit& u : units_)
      for (ShardedBuffer* buffer : u.weights.buffers()) buffer->settle();
  }

  model::Shard resident_shard(int unit, model::Part part) override {
    const ShardedBuffer& b = at(unit).weights.buffer(part);
    if (b.empty()) return {};
    if (b.keeps_whole()) return {b.resident().narrow(0, 0, b.division().n), 0};
    return {b.slice().narrow(0, 0, b.division().length()), b.division().begin()};
  }

  std::vector<GatheredBytes> gathered_bytes() const override {
    std::vector<GatheredBytes> all;
    for (const Unit& u : units_) all.push_back(u.weights.gathered_bytes());
    return all;
  }

  StoreMemory memory() const override {
    StoreMemory m;
    for (const Unit& u : units_) {
      m.weights += u.weights.derived_bytes();
      (offload_.weights ? m.host : m.weights) += u.weights.kept_bytes();
      if (u.sum.defined())
        (offload_.optimizer ? m.host : m.grads) += bytes_of(u.sum) + (u.owned.is_same(u.sum) ? 0 : bytes_of(u.owned));
      if (!strategy_.gradients) m.grads += bytes_of(u.grads);
    }
    m.gathered = transfers_.gathered.now();
    m.gathered_peak = transfers_.gathered.peak();
    m.grads_peak = m.grads + grad_bytes_.peak();
    return m;
  }

 private:
  struct Unit {
    GatheredUnit weights;
    at::Tensor grads;  ///< [padded]: kept over the step, or from the first use in a group to its reduction
    /// [chunk]: sum of this rank's slice over the groups reduced so far, fp32 or wider; only with sharded gradients
    at::Tensor sum;
    at::Tensor owned;  ///< [chunk]: read by the optimizer: `sum`, a copy in the gradients' type, or a view of `grads`
  };
  struct Reduction {
    Unit* unit;
    at::Tensor grads;
    at::Tensor wide;  ///< `grads`, or a wider copy
    comm::Work work;
    at::Tensor on_host;  ///< the owner's slice, if the optimizer is offloaded
    device::Event copied;
  };

  struct DeferredGather {
    int unit;
    GatherPurpose purpose;
    bool frozen_only;
  };

  Unit& at(int unit) { return units_.at(static_cast<std::size_t>(unit)); }

  /// Starts prefetches that were deferred because too much was in flight.
  void start_deferred_gathers() {
    for (; !deferred_.empty(); deferred_.pop_front()) {
      const DeferredGather& next = deferred_.front();
      GatheredUnit& unit = at(next.unit).weights;
      if (unit.is_awaited() && !unit.gather(next.purpose, next.frozen_only)) return;
    }
  }

  void make_gradients(Unit& u) {
    const Division& d = u.weights.trainable().division();
    if (!strategy_.gradients) {
      u.grads = at::zeros({d.padded()}, grad_options_);
      u.owned = d.slice_of(u.grads);
      return;
    }
    // Offloaded gradients exist only on the host; each reduction copies its slice there.
    const at::TensorOptions where = offload_.optimizer ? grad_options_.device(at::kCPU) : grad_options_;
    const auto zeros = [&](at::ScalarType type) { return at::zeros({d.chunk}, where.dtype(type)); };
    u.sum = zeros(wide(grad_type_));
    u.owned = grad_type_ == wide(grad_type_) ? u.sum : zeros(grad_type_);
  }

  /// Copies the slice to host memory after the reduction, on a separate stream.
  void copy_to_host(Reduction& r) {
    const device::Stream& copies = transfers_.copies;
    copies.wait(device::Stream::current(copies.device()));
    const device::StreamGuard beside(copies);
    r.work.wait();
    const at::Tensor slice = r.unit->weights.trainable().division().slice_of(r.wide);
    r.on_host = transfers_.pool.take(slice.numel(), slice.options().device(at::kCPU));
    r.on_host.copy_(slice, /*non_blocking=*/true);
    r.copied.record(copies);
  }

  void complete_oldest() {
    Reduction r = std::move(reductions_.front());
    reductions_.pop_front();
    r.work.wait();
    r.copied.synchronize();
    if (!r.wide.is_same(r.grads)) grad_bytes_.add(-bytes_of(r.wide));
    const at::Tensor slice = offload_.optimizer ? r.on_host : r.unit->weights.trainable().division().slice_of(r.wide);
    if (strategy_.gradients) {
      r.unit->sum.add_(slice);
      grad_bytes_.add(-bytes_of(r.grads));
      free_storage(r.grads);
    } else if (!r.wide.is_same(r.grads)) {
      r.unit->owned.copy_(slice);
    }
  }

  /// Agrees on the experts used by passes that prefetched all experts.
  void agree_on_experts() {
    std::vector<std::uint8_t> all;
    const auto for_each = [&](const auto& f) {
      for (Unit& u : units_)
        if (UsedExperts& e = u.weights.experts(); !e.empty() && !e.on_demand()) f(e);
    };
    for_each([&](UsedExperts& e) { all.insert(all.end(), e.recorded().begin(), e.recorded().end()); });
    if (all.empty()) return;
    shard_.host().all_reduce(all.data(), all.size(), DType::u8, comm::ReduceOp::max);
    auto from = all.begin();
    for_each([&](UsedExperts& e) {
      e.set_agreed({from, from + std::ssize(e.recorded())});
      from += std::ssize(e.recorded());
    });
  }

  /// Returns this rank's slices, in the type in which they are summed.
  std::vector<OwnedGrads> complete_grads() const {
    std::vector<OwnedGrads> all;
    for (const Unit& u : units_) {
      const at::Tensor& grads = u.sum.defined() ? u.sum : u.owned;
      all.push_back({grads, grads.defined() ? u.weights.trainable().division().chunk * shard_.rank() : 0});
    }
    return all;
  }

  void add_up_replicas() {
    std::vector<comm::Work> works;
    comm::Communicator& replicate = offload_.optimizer ? replicate_.host() : replicate_;
    for (Unit& u : units_)
      if (u.sum.defined())
        works.push_back(replicate.start_all_reduce(u.sum.data_ptr(), static_cast<std::size_t>(u.sum.numel()),
                                                   device::dtype_of(u.sum.scalar_type())));
    for (comm::Work& work : works) work.wait();
  }

  const model::ModelSpec& spec_;
  Strategy strategy_;
  Offload offload_;
  comm::Communicator& shard_;
  comm::Communicator& replicate_;
  model::RowSharing tensor_;
  bool training_;
  at::ScalarType grad_type_;
  at::TensorOptions grad_options_;
  Transfers transfers_;
  Gauge grad_bytes_;
  std::uint64_t generations_ = 1;
  std::deque<DeferredGather> deferred_;  ///< in the order of their calls
  std::vector<Unit> units_;
  std::deque<Reduction> reductions_;
};

}  // namespace

std::unique_ptr<WeightStore> make_sharded_store(const model::ModelSpec& spec, const optim::Precision& precision,
                                                c10::Device device, const Strategy& strategy, const Offload& offload,
                                                comm::Communicator& shard, comm::Communicator& replicate, bool training,
                                                const model::RowSharing& tensor) {
  return std::make_unique<ShardedStore>(spec, precision, device, strategy, offload, shard, replicate, training, tensor);
}

}  // namespace qft::parallel
