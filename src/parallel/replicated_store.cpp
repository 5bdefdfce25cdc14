#include "qft/core/error.h"
#include "qft/parallel/optimizer_param.h"
#include "qft/parallel/weight_store.h"

#include "derived_values.h"
#include "gradient_sum.h"
#include "tensor_sum.h"
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

namespace qft::parallel {
namespace {

class ReplicatedStore final : public WeightStore {
 public:
  ReplicatedStore(const model::ModelSpec& spec, const optim::Precision& precision, c10::Device device, comm::Communicator& comm,
                  bool training, ReductionOrder reduction_order, std::int64_t bucket_bytes, const model::RowSharing& tensor)
      : spec_(spec),
        tensor_(tensor),
        pool_(device),
        units_(spec.units.size()),
        unit_grads_(spec.units.size()),
        order_(spec.units.size()) {
    const auto options = at::TensorOptions().dtype(precision.compute).device(device);
    for (std::size_t u = 0; u < units_.size(); ++u) {
      const auto& unit = spec.units[u];
      model::UnitBuffers& buffers = units_[u].buffers;
      buffers.generation = 1;
      if (unit.frozen_numel > 0) buffers.frozen = at::empty({unit.frozen_numel}, options);
      if (unit.packed_bytes > 0) units_[u].packed = at::empty({unit.packed_bytes}, options.dtype(at::kByte));
      units_[u].decoded = DecodedBuffer(unit, options, pool_, decoded_);
      units_[u].derived = DerivedValues(spec, unit, precision.compute, device, tensor);
      // Zeros, because the optimizer also computes on the alignment gaps.
      if (unit.trainable_numel > 0) buffers.trainable = at::zeros({unit.trainable_numel}, options);
    }
    if (!training) return;
    GradientLayout layout = lay_out_gradients(options.dtype(precision.grad), bucket_bytes);
    sum_ = reduction_order == ReductionOrder::by_micro_batch ? make_tree_sum(std::move(layout), comm)
                                                             : make_bucketed_sum(std::move(layout), comm);
  }

  void make_room(int unit) override { at(unit).decoded.make_room(); }
  void gather(int, GatherPurpose, bool) override {}
  const model::UnitBuffers& acquire(int unit, GatherPurpose) override { return acquire(unit); }
  void gather_experts(int, std::span<const std::int64_t>) override {}
  void verify_experts(int, std::span<const std::int64_t>) override {}
  const model::UnitBuffers& acquire(int unit) override {
    Unit& u = at(unit);
    if (u.held++ > 0) return u.buffers;
    if (!u.decoded.empty()) {
      u.buffers.decoded = u.decoded.fill(u.packed);
      u.buffers.generation = ++generation_;
    }
    u.derived.fill(u.buffers);
    return u.buffers;
  }
  void release(int unit) override {
    Unit& u = at(unit);
    if (--u.held == 0) u.free_decoded();
  }

  void start_step(const MicroRange& micros) override { sum_->start_step(micros); }
  at::Tensor grads(int unit) override { return unit_grads_.at(static_cast<std::size_t>(unit)); }
  void reduce(int unit) override { sum_->reduce(order_.at(static_cast<std::size_t>(unit))); }
  void poll() override {
    if (sum_) sum_->poll();
  }
  void finish_reductions() override {
    sum_->finish();
    std::vector<OwnedGrads> owned;
    for (const at::Tensor& grads : unit_grads_) owned.push_back({grads});
    add_up_terms(spec_, owned, tensor_);
  }
  void abandon_step() override {  // nothing is in flight before the last group's reductions
    for (Unit& u : units_) {
      u.held = 0;
      u.free_decoded();
    }
  }
  std::vector<double> local_grad_square_sums() const override {
    CountedGrads counted(units_.size());
    for (std::size_t u = 0; u < units_.size(); ++u) {
      if (!unit_grads_[u].defined()) continue;
      const std::int64_t n = unit_grads_[u].numel();
      counted.add(u, unit_grads_[u], within(ranges_in_norm(spec_.units[u], 0, n), sum_->counted_part(n)));
    }
    return counted.square_sums();
  }

  std::vector<optim::FlatParams> owned() const override {
    std::vector<optim::FlatParams> all;
    for (std::size_t u = 0; u < units_.size(); ++u) {
      const at::Tensor& trainable = units_[u].buffers.trainable;
      if (trainable.defined()) all.push_back(owned_params(spec_.units[u], trainable, unit_grads_[u], 0));
    }
    return all;
  }

  void broadcast_updates() override {
    for (Unit& u : units_) u.derived.weights_changed();
  }
  void settle() override {}

  model::Shard resident_shard(int unit, model::Part part) override {
    const Unit& u = at(unit);
    return {part == model::Part::trainable   ? u.buffers.trainable
            : part == model::Part::quantized ? u.packed
                                             : u.buffers.frozen,
            0};
  }
  std::vector<GatheredBytes> gathered_bytes() const override {
    std::vector<GatheredBytes> all;
    for (const Unit& u : units_) all.push_back({0, 0, u.decoded.bytes()});
    return all;
  }
  StoreMemory memory() const override {
    StoreMemory m;
    for (const auto& u : units_) m.weights += u.derived.bytes();
    for (const auto& u : units_)
      for (const auto& t : {u.buffers.frozen, u.buffers.trainable, u.packed})
        if (t.defined()) m.weights += static_cast<std::int64_t>(t.nbytes());
    for (const at::Tensor& grads : unit_grads_)
      if (grads.defined()) m.grads += static_cast<std::int64_t>(grads.nbytes());
    m.gathered = decoded_.now();
    m.gathered_peak = decoded_.peak();
    m.grads_peak = m.grads + (sum_ ? sum_->bytes() : 0);
    return m;
  }

 private:
  struct Unit {
    model::UnitBuffers buffers;
    at::Tensor packed;  ///< [packed_bytes]
    DecodedBuffer decoded;
    DerivedValues derived;
    int held = 0;

    void free_decoded() {
      buffers.decoded.reset();
      decoded.free();
    }
  };

  Unit& at(int unit) { return units_.at(static_cast<std::size_t>(unit)); }

  /// Lays units out last one first: the order in which the backward pass completes them.
  GradientLayout lay_out_gradients(const at::TensorOptions& options, std::int64_t bucket_bytes) {
    std::int64_t total = 0;
    for (const auto& unit : spec_.units) total += unit.trainable_numel;
    require(total > 0, "no parameter is trainable: check finetuning_type and lora_target");
    const std::vector<int> bucket_of = gradient_buckets(spec_, c10::typeMetaToScalarType(options.dtype()), bucket_bytes);
    GradientLayout layout{at::zeros({total}, options), {}, {}, bucket_bytes};
    std::int64_t end = 0;
    for (std::size_t u = units_.size(); u-- > 0;) {
      const std::int64_t n = spec_.units[u].trainable_numel;
      if (n == 0) continue;
      unit_grads_[u] = layout.grads.narrow(0, end, n);
      order_[u] = layout.ends.size();
      layout.ends.push_back(end += n);
      layout.bucket_of.push_back(static_cast<std::size_t>(bucket_of[u]));
    }
    return layout;
  }

  const model::ModelSpec& spec_;
  model::RowSharing tensor_;
  BlockPool pool_;
  Gauge decoded_;
  std::uint64_t generation_ = 1;
  std::vector<Unit> units_;
  std::vector<at::Tensor> unit_grads_;  ///< views of the layout's `grads`
  std::vector<std::size_t> order_;      ///< index of each unit in the layout
  std::unique_ptr<GradientSum> sum_;    ///< nullptr without training
};

}  // namespace

std::vector<int> gradient_buckets(const model::ModelSpec& spec, at::ScalarType grad, std::int64_t bucket_bytes) {
  const std::int64_t limit = bucket_bytes / static_cast<std::int64_t>(c10::elementSize(grad));
  std::vector<int> bucket_of(spec.units.size(), -1);
  std::int64_t filled = limit;  // the first unit opens a bucket
  int bucket = -1;
  for (std::size_t u = bucket_of.size(); u-- > 0;) {
    const std::int64_t n = spec.units[u].trainable_numel;
    if (n == 0) continue;
    if (filled >= limit) {
      ++bucket;
      filled = 0;
    }
    filled += n;
    bucket_of[u] = bucket;
  }
  return bucket_of;
}

std::unique_ptr<WeightStore> make_replicated_store(const model::ModelSpec& spec, const optim::Precision& precision,
                                                   c10::Device device, comm::Communicator& comm, bool training,
                                                   ReductionOrder reduction_order, std::int64_t bucket_bytes,
                                                   const model::RowSharing& tensor) {
  return std::make_unique<ReplicatedStore>(spec, precision, device, comm, training, reduction_order, bucket_bytes, tensor);
}

}  // namespace qft::parallel
