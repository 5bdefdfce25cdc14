#include "gradient_sum.h"

#include "qft/comm/exchange.h"
#include "qft/core/error.h"
#include "qft/device/scalar_type.h"
#include "qft/parallel/sharded_buffer.h"

#include <algorithm>

#include "sum_tree.h"
#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>

namespace qft::parallel {
namespace {

class TreeGradientSum final : public GradientSum {
 public:
  TreeGradientSum(GradientLayout layout, comm::Communicator& comm) : layout_(std::move(layout)), comm_(comm) {}

  void start_step(const MicroRange& micros) override {
    QFT_ASSERT(micros.total > 0, "summing gradients in micro-batch order needs the range of the micro-batches");
    micros_ = micros;
    added_ = 0;
    complete_ = 0;
    layout_.grads.zero_();
    tree_.clear();
  }

  void reduce(std::size_t) override {
    if (++complete_ < layout_.ends.size()) return;
    complete_ = 0;
    if (added_ == micros_.count) return;  // a round in which this rank has no micro-batch
    tree_.add({0, micros_.first + added_++}, layout_.grads);
    layout_.grads.zero_();
  }

  void poll() override {}

  void finish() override {
    const c10::InferenceMode no_autograd;
    QFT_ASSERT(added_ == micros_.count && complete_ == 0, "{} of {} micro-batches were added up", added_, micros_.count);
    if (comm_.size() == 1) {
      layout_.grads.copy_(tree_.finish());
      return;
    }
    const auto nodes = nodes_of_ranks();
    const std::int64_t piece =
        std::max<std::int64_t>(1, layout_.piece_bytes / static_cast<std::int64_t>(layout_.grads.element_size()));
    for (std::int64_t begin = 0; begin < layout_.grads.numel(); begin += piece)
      combine(nodes, begin, std::min(piece, layout_.grads.numel() - begin));
  }

  /// Rank 0 counts all of it, because a sum over ranks would depend on their number.
  Range counted_part(std::int64_t n) const override { return {0, comm_.rank() == 0 ? n : 0}; }
  std::int64_t bytes() const override { return tree_.bytes(); }

 private:
  std::vector<std::vector<TreeNode>> nodes_of_ranks() {
    std::vector<std::vector<TreeNode>> nodes;
    std::int64_t next = 0;
    for (const std::int64_t count : comm::all_gather_value(comm_.host(), micros_.count)) {
      nodes.push_back(nodes_of(next, count));
      if (static_cast<int>(nodes.size()) - 1 == comm_.rank())
        QFT_ASSERT(next == micros_.first, "this rank's micro-batches start at {}, the ranks below have {}", micros_.first, next);
      next += count;
    }
    QFT_ASSERT(next == micros_.total, "the ranks have {} of {} micro-batches", next, micros_.total);
    return nodes;
  }

  /// Combines elements [begin, begin + length): each rank receives all nodes of one slice, adds them up in the tree, and sends
  /// the sum to the others.
  void combine(const std::vector<std::vector<TreeNode>>& nodes, std::int64_t begin, std::int64_t length) {
    const std::int64_t ranks = comm_.size(), share = (length + ranks - 1) / ranks;
    std::vector<std::size_t> slice_sizes, send_counts, recv_counts;
    for (std::int64_t r = 0; r < ranks; ++r)
      slice_sizes.push_back(static_cast<std::size_t>(std::clamp<std::int64_t>(length - r * share, 0, share)));
    const std::size_t mine = slice_sizes[static_cast<std::size_t>(comm_.rank())];
    for (std::size_t r = 0; r < slice_sizes.size(); ++r) {
      send_counts.push_back(tree_.sums().size() * slice_sizes[r]);
      recv_counts.push_back(nodes[r].size() * mine);
    }
    const auto options = layout_.grads.options().dtype(wide(layout_.grads.scalar_type()));
    const DType dtype = device::dtype_of(c10::typeMetaToScalarType(options.dtype()));
    const at::Tensor outgoing = slices_for_all(slice_sizes, begin, options);
    std::int64_t received = 0;
    for (const std::size_t n : recv_counts) received += static_cast<std::int64_t>(n);
    const at::Tensor incoming = at::empty({received}, options);
    comm_.all_to_all_v(outgoing.data_ptr(), send_counts, incoming.data_ptr(), recv_counts, dtype);
    SumTree slice;
    std::int64_t at = 0;
    for (const auto& of_rank : nodes)
      for (const TreeNode& node : of_rank) {
        slice.add(node, incoming.narrow(0, at, static_cast<std::int64_t>(mine)));
        at += static_cast<std::int64_t>(mine);
      }
    const at::Tensor sum = at::empty({length}, options);
    comm_.all_gather_v(slice.finish().data_ptr(), sum.data_ptr(), slice_sizes, dtype);
    layout_.grads.narrow(0, begin, length).copy_(sum);
  }

  /// Packs, for each rank, its slice of each local sum.
  at::Tensor slices_for_all(const std::vector<std::size_t>& slice_sizes, std::int64_t begin,
                            const at::TensorOptions& options) const {
    std::int64_t total = 0;
    for (const std::size_t n : slice_sizes) total += static_cast<std::int64_t>(n);
    at::Tensor all = at::empty({total * static_cast<std::int64_t>(tree_.sums().size())}, options);
    std::int64_t at = 0;
    for (const std::size_t size : slice_sizes) {
      const auto n = static_cast<std::int64_t>(size);
      for (const at::Tensor& sum : tree_.sums()) {
        all.narrow(0, at, n).copy_(sum.narrow(0, begin, n));
        at += n;
      }
      begin += n;
    }
    return all;
  }

  GradientLayout layout_;
  comm::Communicator& comm_;
  MicroRange micros_;
  std::int64_t added_ = 0;    ///< micro-batches added in this step
  std::size_t complete_ = 0;  ///< complete units of the current micro-batch
  SumTree tree_;
};

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

std::unique_ptr<GradientSum> make_tree_sum(GradientLayout layout, comm::Communicator& comm) {
  return std::make_unique<TreeGradientSum>(std::move(layout), comm);
}

std::unique_ptr<GradientSum> make_bucketed_sum(GradientLayout layout, comm::Communicator& comm) {
  return std::make_unique<BucketedGradientSum>(std::move(layout), comm);
}

}  // namespace qft::parallel
