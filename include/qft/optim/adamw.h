// AdamW (Loshchilov & Hutter 2019) over flat buffers: on a CUDA device by a kernel of our own, elsewhere and in fp64 by ATen's
// fused one. The update rule is torch.optim.AdamW's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "qft/optim/precision.h"

namespace qft::optim {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0.0;
};

/// A range [begin, end) of a flat buffer that shares its hyper-parameters.
struct Segment {
  std::int64_t begin = 0, end = 0;
  bool decays = true;  ///< weight_decay applies
};

/// One flat buffer that this rank owns: weights (compute dtype) and gradients, 1-D and of one length. Not owned here.
/// Masters and moments live, and the update runs, where the gradients are: in host memory if the optimizer is offloaded.
struct FlatParams {
  std::string name;
  at::Tensor weights;
  at::Tensor grads;
  std::vector<Segment> segments;
  std::int64_t begin = 0;  ///< where in the unit the buffer starts: a slice of it where the optimizer is sharded
};

class AdamW {
 public:
  AdamW(std::vector<FlatParams> params, const AdamWOptions& options, const Precision& precision);

  /// One update with gradients multiplied by `grad_scale` (clipping). Refreshes the compute copies.
  void step(double learning_rate, double grad_scale);

  std::size_t size() const { return params_.size(); }
  /// The updated copy of buffer i: a tensor of its own where the precision has masters, else the weights.
  at::Tensor master(std::size_t i) const { return state_.at(i).master; }
  at::Tensor exp_avg(std::size_t i) const { return state_.at(i).exp_avg; }
  at::Tensor exp_avg_sq(std::size_t i) const { return state_.at(i).exp_avg_sq; }
  /// FlatParams::begin of buffer i.
  std::int64_t begin(std::size_t i) const { return params_.at(i).begin; }
  const std::string& name(std::size_t i) const { return params_.at(i).name; }

  /// Copies all masters to their compute weights: after masters were loaded or changed from outside.
  void publish();

  /// Updates made so far (the t of bias correction).
  std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps);
  /// Bytes of masters and moments.
  std::int64_t bytes() const;

 private:
  void publish(std::size_t i);

  struct State {
    at::Tensor master, exp_avg, exp_avg_sq;
    bool has_copy = false;   ///< the master is not the weights themselves
    bool by_kernel = false;  ///< updated and copied by our own kernel; else one of the groups' views
  };
  /// Views of one hyper-parameter class, built once: ATen's kernel takes lists.
  struct Group {
    double weight_decay = 0.0;
    std::vector<at::Tensor> params, grads, exp_avgs, exp_avg_sqs, steps;
  };

  std::vector<FlatParams> params_;
  AdamWOptions options_;
  std::vector<State> state_;
  std::vector<Group> groups_;
  std::int64_t steps_ = 0;
};

}  // namespace qft::optim
