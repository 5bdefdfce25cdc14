#include "qft/core/error.h"
#include "qft/device/scalar_type.h"

#include <algorithm>

#include "gradient_sum.h"

namespace qft::parallel {
namespace {

/// A contiguous range of the gradient buffer, all-reduced in one call once all its units are complete.
struct Bucket {
  std::int64_t begin = 0, end = 0;
  int units = 0, pending = 0;
  at::Tensor staging;  ///< fp32 copy in flight, if gradients have a narrower type
  comm::Work work;
  bool in_flight = false;
};

class BucketedGradientSum final : public GradientSum {
 public:
  BucketedGradientSum(GradientLayout layout, comm::Communicator& comm)
      : grads_(std::move(layout.grads)), comm_(comm), bucket_of_(std::move(layout.bucket_of)) {
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < bucket_of_.size(); ++i) {
      if (bucket_of_[i] == buckets_.size()) buckets_.emplace_back().begin = begin;
      buckets_.back().end = begin = layout.ends[i];
      ++buckets_.back().units;
    }
  }

  void start_step(const MicroRange&) override {
    grads_.zero_();
    for (Bucket& b : buckets_) b.pending = b.units;
  }

  void reduce(std::size_t i) override {
    Bucket& bucket = buckets_.at(bucket_of_.at(i));
    QFT_ASSERT(bucket.pending > 0, "the gradients [{}, {}) are reduced twice in a step", bucket.begin, bucket.end);
    if (--bucket.pending > 0 || comm_.size() == 1) return;
    at::Tensor data = grads_.narrow(0, bucket.begin, bucket.end - bucket.begin);
    if (data.element_size() < 4) {
      data = bucket.staging = data.to(at::kFloat);
      staged_peak_ = std::max(staged_peak_, staged_ += static_cast<std::int64_t>(data.nbytes()));
    }
    bucket.work =
        comm_.start_all_reduce(data.data_ptr(), static_cast<std::size_t>(data.numel()), device::dtype_of(data.scalar_type()));
    bucket.in_flight = true;
  }

  void poll() override {
    for (Bucket& b : buckets_)
      if (b.in_flight) b.work.test();
  }

  void finish() override {
    for (Bucket& b : buckets_) {
      if (!b.in_flight) continue;
      b.work.wait();
      b.in_flight = false;
      if (!b.staging.defined()) continue;
      grads_.narrow(0, b.begin, b.end - b.begin).copy_(b.staging);
      b.staging.reset();
    }
    staged_ = 0;
  }

  /// Divides each unit alone, so that the parts do not depend on the other units here.
  Range counted_part(std::int64_t n) const override {
    const std::int64_t share = (n + comm_.size() - 1) / comm_.size(), begin = std::min(share * comm_.rank(), n);
    return {begin, std::min(begin + share, n)};
  }
  std::int64_t bytes() const override { return staged_peak_; }

 private:
  at::Tensor grads_;
  comm::Communicator& comm_;
  std::vector<std::size_t> bucket_of_;  ///< per unit
  std::vector<Bucket> buckets_;
  std::int64_t staged_ = 0, staged_peak_ = 0;  ///< bytes of copies in flight
};

}  // namespace

std::unique_ptr<GradientSum> make_bucketed_sum(GradientLayout layout, comm::Communicator& comm) {
  return std::make_unique<BucketedGradientSum>(std::move(layout), comm);
}

}  // namespace qft::parallel
