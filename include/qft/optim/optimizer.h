// An optimizer on the flat buffers that a rank owns: masters, the rule's state, and the compute copies.
#pragma once

#include "qft/device/stream.h"
#include "qft/optim/precision.h"
#include "qft/optim/rule.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::optim {

/// One flat buffer that this rank owns: weights (compute dtype) and gradients, 1-D and of one length. Not owned here.
/// Masters and state live, and the update runs, where the gradients are: in host memory if the optimizer is offloaded.
struct FlatParams {
  std::string name;
  at::Tensor weights;
  at::Tensor grads;
  std::vector<Segment> segments;  ///< what lies between them is not updated
  std::int64_t begin = 0;         ///< where in the unit the buffer starts: a slice of it where the optimizer is sharded
};

class Optimizer {
 public:
  /// `rule`: a row of rules().
  Optimizer(const RuleSpec& rule, std::vector<FlatParams> params, const Hyper& hyper, const Precision& precision);

  /// One update with gradients multiplied by `grad_scale` (clipping). Refreshes the compute copies.
  void step(double learning_rate, double grad_scale);

  const RuleSpec& rule() const { return spec_; }
  std::size_t size() const { return params_.size(); }
  /// The updated copy of buffer i: a tensor of its own where the precision has masters, else the weights.
  at::Tensor master(std::size_t i) const { return buffers_.at(i).master; }
  /// rule().state[which] of buffer i.
  at::Tensor state(std::size_t i, std::size_t which) const { return buffers_.at(i).state.at(which); }
  /// FlatParams::begin of buffer i.
  std::int64_t begin(std::size_t i) const { return params_.at(i).begin; }
  const std::string& name(std::size_t i) const { return params_.at(i).name; }

  /// Copies all masters to their compute weights: after masters were loaded or changed from outside.
  void publish();

  /// Updates made so far.
  std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }
  /// Bytes of masters and state.
  std::int64_t bytes() const;

 private:
  struct Buffer {
    at::Tensor master;
    std::vector<at::Tensor> state;
    bool has_copy = false;  ///< the master is not the weights themselves
    at::Tensor staging;     ///< rounded masters on their way to a device, where they are in host memory: pinned
    device::Event uploaded;
    const at::Tensor& copy_in(const at::Tensor& weights) const { return staging.defined() ? staging : weights; }
  };

  /// Returns whether the rule wrote the copy.
  bool update(std::size_t i, const Segment& segment, double learning_rate, double grad_scale);
  void publish(std::size_t i);
  /// Starts the copy to the device, where there is one.
  void upload(std::size_t i);

  const RuleSpec& spec_;
  std::unique_ptr<Rule> rule_;
  double weight_decay_;
  std::vector<FlatParams> params_;
  std::vector<Buffer> buffers_;
  std::int64_t steps_ = 0;
};

}  // namespace qft::optim
