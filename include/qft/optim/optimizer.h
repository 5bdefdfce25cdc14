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

class Owners;

/// One flat buffer that this rank owns: weights (compute dtype) and gradients, 1-D and of one length. Not owned here.
/// Masters and state live, and the update runs, where the gradients are: in host memory if the optimizer is offloaded.
struct FlatParams {
  std::string name;
  at::Tensor weights;
  at::Tensor grads;
  std::vector<Segment> segments;  ///< of the whole unit, ascending; what lies between them is not updated
  std::int64_t begin = 0;         ///< where in the unit the buffer starts: a slice of it where the optimizer is sharded
};

/// What this rank has of a tensor of the state.
struct HeldState {
  StateSpec spec;
  at::Tensor values;        ///< 1-D; may be empty
  std::int64_t begin = 0;   ///< in the whole
  std::int64_t shared = 0;  ///< so many of the first are another rank's, which has the same values: it saves them
};

class Optimizer {
 public:
  /// `rule`: a row of rules(). `ranks`: those that have the other slices of the buffers, by rank, each as long as this one's;
  /// null: there are none. It must outlive the optimizer.
  Optimizer(const RuleSpec& rule, std::vector<FlatParams> params, const Hyper& hyper, const Precision& precision,
            comm::Communicator* ranks = nullptr);
  ~Optimizer();

  /// One update with gradients multiplied by `grad_scale` (clipping). Refreshes the compute copies. The gradients are lost.
  /// Collective over the ranks.
  void step(double learning_rate, double grad_scale);

  const RuleSpec& rule() const { return spec_; }
  const Hyper& hyper() const { return hyper_; }
  std::size_t size() const { return params_.size(); }
  /// The updated copy of buffer i: a tensor of its own where the precision has masters, else the weights.
  at::Tensor master(std::size_t i) const { return buffers_.at(i).master; }
  /// rule().state[which] of buffer i, where the rule is uniform.
  at::Tensor state(std::size_t i, std::size_t which) const { return buffers_.at(i).state.at(which); }
  /// rule().states() of the segment of buffer i that begins there in the unit.
  std::vector<HeldState> held_states(std::size_t i, std::int64_t segment_begin) const;
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
  /// What there is here of a segment, or of several that are updated as one.
  struct Piece {
    std::int64_t begin = 0, end = 0;  ///< in this rank's buffer
    std::size_t segment = 0;          ///< the first
    std::vector<at::Tensor> state;
    bool whole = false;  ///< RuleSpec::whole
  };
  struct Buffer {
    at::Tensor master;
    std::vector<at::Tensor> state;  ///< of a uniform rule, as long as the master
    std::vector<Piece> pieces;
    bool has_copy = false;  ///< the master is not the weights themselves
    at::Tensor staging;     ///< rounded masters on their way to a device, where they are in host memory: pinned
    device::Event uploaded;
    const at::Tensor& copy_in(const at::Tensor& weights) const { return staging.defined() ? staging : weights; }
    bool has_whole() const;
  };

  void allocate(std::size_t i, const Precision& precision);
  void cut(std::size_t i);
  void allocate_state(std::size_t i, const Precision& precision);
  void deal();
  std::vector<StateSpec> states_of(const Segment& segment) const { return spec_.states(segment.param, hyper_, precision_); }
  /// The part of a segment that is here, as [begin, end) of the buffer; empty: begin >= end.
  std::pair<std::int64_t, std::int64_t> here(std::size_t i, const Segment& segment) const;
  Update update_of(std::size_t i, const Piece& piece, double learning_rate, double grad_scale) const;
  void step_whole(double learning_rate, double grad_scale);
  void publish(std::size_t i);
  /// Starts the copy to the device, where there is one.
  void upload(std::size_t i);

  const RuleSpec& spec_;
  Hyper hyper_;
  Precision precision_;
  std::unique_ptr<Rule> rule_;
  std::vector<FlatParams> params_;
  std::vector<Buffer> buffers_;
  Slices slices_;
  std::unique_ptr<Owners> owners_;  ///< null where the rule needs none
  std::int64_t steps_ = 0;
};

}  // namespace qft::optim
