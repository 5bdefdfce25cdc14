// An optimizer on the flat buffers that a rank owns: master weights, the rule's state, and the compute copies.
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

/// One flat buffer that this rank updates: weights (compute dtype) and gradients, 1-D, of equal length. Does not own the tensors'
/// data. Masters and state live, and the update runs, on the gradients' device: in host memory if the optimizer is offloaded.
struct FlatParams {
  std::string name;
  at::Tensor weights;
  at::Tensor grads;
  std::vector<Segment> segments;  ///< of the whole unit, ascending; elements between segments are not updated
  std::int64_t begin = 0;  ///< offset of the buffer in the unit; the buffer is a slice of the unit if the optimizer is sharded
};

/// This rank's part of a state tensor.
struct HeldState {
  StateSpec spec;
  at::Tensor values;        ///< 1-D; may be empty
  std::int64_t begin = 0;   ///< offset in the whole tensor
  std::int64_t shared = 0;  ///< leading elements that another rank also holds, with the same values; that rank saves them
};

class Optimizer {
 public:
  /// `rule`: a row of rules(). `ranks`: the ranks that hold the other slices of the buffers and the other boxes of the tensors,
  /// ordered as in Slices; their slices are as long as this rank's; null: this rank holds everything. `rule` and `ranks` must
  /// outlive the optimizer. Collective over the ranks if `tensor_ranks` > 1.
  Optimizer(const RuleSpec& rule, std::vector<FlatParams> params, const Hyper& hyper, const Precision& precision,
            comm::Communicator* ranks = nullptr, int tensor_ranks = 1);
  ~Optimizer();

  /// Performs one update with gradients multiplied by `grad_scale` (clipping). Refreshes the compute copies. Overwrites the
  /// gradients. Collective over the ranks.
  void step(double learning_rate, double grad_scale);

  const RuleSpec& rule() const { return spec_; }
  const Hyper& hyper() const { return hyper_; }
  std::size_t size() const { return params_.size(); }
  /// Returns the updated copy of buffer i: a separate tensor if the precision has masters, otherwise the weights.
  at::Tensor master(std::size_t i) const { return buffers_.at(i).master; }
  /// Returns rule().state[which] of buffer i, for uniform rules.
  at::Tensor state(std::size_t i, std::size_t which) const { return buffers_.at(i).state.at(which); }
  /// Returns the states, in the order of rule().states(), of the segment of buffer i that begins at `segment_begin` in the unit.
  std::vector<HeldState> held_states(std::size_t i, std::int64_t segment_begin) const;
  /// Returns FlatParams::begin of buffer i.
  std::int64_t begin(std::size_t i) const { return params_.at(i).begin; }
  const std::string& name(std::size_t i) const { return params_.at(i).name; }

  /// Copies all masters to their compute weights. Call it after masters were loaded or changed from outside.
  void refresh_copies();

  /// Returns the number of updates so far.
  std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }
  /// Returns the bytes of masters and state.
  std::int64_t bytes() const;

 private:
  /// This rank's part of a segment, or of several segments that are updated as one.
  struct Piece {
    std::int64_t begin = 0, end = 0;  ///< in this rank's buffer
    std::size_t segment = 0;          ///< index of the first segment
    std::vector<at::Tensor> state;
    bool whole = false;  ///< RuleSpec::whole
  };
  struct Buffer {
    at::Tensor master;
    std::vector<at::Tensor> state;  ///< for uniform rules: as long as the master
    std::vector<Piece> pieces;
    bool has_copy = false;  ///< the master is a separate tensor, not the weights
    at::Tensor staging;     ///< pinned buffer of rounded masters on their way to a device, if the masters are in host memory
    device::Event uploaded;
    const at::Tensor& copy_in(const at::Tensor& weights) const { return staging.defined() ? staging : weights; }
    bool has_whole() const;
  };

  void allocate(std::size_t i, const Precision& precision);
  void cut(std::size_t i);
  void allocate_state(std::size_t i, const Precision& precision);
  void assign_owners();
  std::vector<StateSpec> states_of(const Segment& segment) const { return spec_.states(segment.param, hyper_, precision_); }
  /// Returns the local part of a segment as [begin, end) of the buffer; empty if begin >= end.
  std::pair<std::int64_t, std::int64_t> here(std::size_t i, const Segment& segment) const;
  Update update_of(std::size_t i, const Piece& piece, double learning_rate, double grad_scale) const;
  void step_whole(double learning_rate, double grad_scale);
  void refresh_copies(std::size_t i);
  /// Starts the copy to the device, if there is one.
  void upload(std::size_t i);

  const RuleSpec& spec_;
  Hyper hyper_;
  Precision precision_;
  std::unique_ptr<Rule> rule_;
  std::vector<FlatParams> params_;
  std::vector<Buffer> buffers_;
  Slices slices_;
  std::unique_ptr<Owners> owners_;  ///< null if the rule needs no owners
  std::int64_t steps_ = 0;
};

}  // namespace qft::optim
