#include <algorithm>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "qft/core/error.h"
#include "qft/model/load.h"
#include "qft/parallel/weight_store.h"

#include "owned_params.h"

namespace qft::parallel {
namespace {

/// A contiguous range of the gradient buffer that is all-reduced as one, once all its units are complete.
struct Bucket {
  std::int64_t begin = 0, end = 0;
  int units = 0, pending = 0;
  at::Tensor staging;  ///< fp32 copy in flight where gradients are narrower
  comm::Work work;
  bool in_flight = false;
};

class ReplicatedStore final : public WeightStore {
 public:
  ReplicatedStore(const model::ModelSpec& spec, const optim::Precision& precision, c10::Device device,
                  comm::Communicator& comm, bool training, std::int64_t bucket_bytes)
      : spec_(spec), comm_(comm), units_(spec.units.size()), unit_grads_(spec.units.size()) {
    const auto options = at::TensorOptions().dtype(precision.compute).device(device);
    for (std::size_t u = 0; u < units_.size(); ++u) {
      const auto& unit = spec.units[u];
      units_[u].generation = 1;
      if (unit.frozen_numel > 0) units_[u].frozen = at::empty({unit.frozen_numel}, options);
      // Zeros: the alignment gaps take part in the optimizer's arithmetic.
      if (unit.trainable_numel > 0) units_[u].trainable = at::zeros({unit.trainable_numel}, options);
    }
    if (training) lay_out_gradients(options.dtype(precision.grad), bucket_bytes);
  }

  void gather(int, bool) override {}
  const UnitBuffers& acquire(int unit) override { return units_.at(static_cast<std::size_t>(unit)); }
  void release(int) override {}

  void zero_grads() override {
    if (grads_.defined()) grads_.zero_();
    for (Bucket& b : buckets_) b.pending = b.units;
  }

  at::Tensor grads(int unit) override { return unit_grads_.at(static_cast<std::size_t>(unit)); }

  void reduce(int unit) override {
    Bucket& bucket = buckets_.at(static_cast<std::size_t>(bucket_of_.at(static_cast<std::size_t>(unit))));
    QFT_ASSERT(bucket.pending > 0, "unit {} is reduced twice in a step", unit);
    if (--bucket.pending > 0 || comm_.size() == 1) return;
    at::Tensor data = grads_.narrow(0, bucket.begin, bucket.end - bucket.begin);
    if (data.element_size() < 4) data = bucket.staging = data.to(at::kFloat);
    bucket.work = comm_.start_all_reduce(data.data_ptr(), static_cast<std::size_t>(data.numel()),
                                         model::dtype_of(data.scalar_type()));
    bucket.in_flight = true;
  }

  void poll() override {
    for (Bucket& b : buckets_)
      if (b.in_flight) b.work.test();
  }

  void finish_reductions() override {
    for (Bucket& b : buckets_) {
      if (!b.in_flight) continue;
      b.work.wait();
      b.in_flight = false;
      if (!b.staging.defined()) continue;
      grads_.narrow(0, b.begin, b.end - b.begin).copy_(b.staging);
      b.staging.reset();
    }
  }

  double local_grad_square_sum() const override {
    const std::int64_t share = (grads_.numel() + comm_.size() - 1) / comm_.size();
    const std::int64_t begin = std::min(share * comm_.rank(), grads_.numel());
    const std::int64_t length = std::min(share, grads_.numel() - begin);
    return square_sum(grads_.narrow(0, begin, length));
  }

  std::vector<optim::FlatParams> owned() const override {
    std::vector<optim::FlatParams> all;
    for (std::size_t u = 0; u < units_.size(); ++u) {
      if (!units_[u].trainable.defined()) continue;
      all.push_back(owned_params(spec_.units[u], units_[u].trainable, unit_grads_[u], 0));
    }
    return all;
  }

  void publish() override {}

  RestSlice at_rest(int unit, bool trainable) override {
    const UnitBuffers& buffers = units_.at(static_cast<std::size_t>(unit));
    return {trainable ? buffers.trainable : buffers.frozen, 0};
  }
  std::vector<GatheredBytes> gathered_bytes() const override { return std::vector<GatheredBytes>(units_.size()); }
  StoreMemory memory() const override {
    StoreMemory m;
    for (const auto& u : units_)
      for (const auto& t : {u.frozen, u.trainable})
        if (t.defined()) m.weights += static_cast<std::int64_t>(t.nbytes());
    if (grads_.defined()) m.grads = m.grads_peak = static_cast<std::int64_t>(grads_.nbytes());
    return m;
  }

 private:
  /// Last unit first: the order in which the backward pass completes them.
  void lay_out_gradients(const at::TensorOptions& options, std::int64_t bucket_bytes) {
    std::int64_t total = 0;
    for (const auto& unit : spec_.units) total += unit.trainable_numel;
    require(total > 0, "no parameter is trainable: check finetuning_type and lora_target");
    grads_ = at::zeros({total}, options);
    bucket_of_ = gradient_buckets(spec_, grads_.scalar_type(), bucket_bytes);
    std::int64_t end = 0;
    for (std::size_t u = units_.size(); u-- > 0;) {
      const std::int64_t n = spec_.units[u].trainable_numel;
      if (n == 0) continue;
      unit_grads_[u] = grads_.narrow(0, end, n);
      if (static_cast<std::size_t>(bucket_of_[u]) == buckets_.size()) buckets_.emplace_back().begin = end;
      end += n;
      buckets_.back().end = end;
      ++buckets_.back().units;
    }
  }

  const model::ModelSpec& spec_;
  comm::Communicator& comm_;
  std::vector<UnitBuffers> units_;
  std::vector<at::Tensor> unit_grads_;  ///< views of grads_
  std::vector<int> bucket_of_;
  std::vector<Bucket> buckets_;
  at::Tensor grads_;  ///< all units' gradients
};

}  // namespace

std::vector<int> gradient_buckets(const model::ModelSpec& spec, at::ScalarType grad, std::int64_t bucket_bytes) {
  const std::int64_t limit = bucket_bytes / static_cast<std::int64_t>(c10::elementSize(grad));
  std::vector<int> bucket_of(spec.units.size(), -1);
  std::int64_t filled = limit;  // the first one opens a bucket
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
                                                   std::int64_t bucket_bytes) {
  return std::make_unique<ReplicatedStore>(spec, precision, device, comm, training, bucket_bytes);
}

}  // namespace qft::parallel
