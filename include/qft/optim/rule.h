// Optimizer rules: the update of a parameter and its state. Each rule has a source file in src/optim and a row of
// config/optimizers.h. Snapshots, resuming, memory plans and the simulation of a step read the table rules().
#pragma once

#include "qft/core/box.h"
#include "qft/optim/precision.h"
#include "qft/optim/rule_args.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::comm {
class Communicator;
}

namespace qft::optim {

/// The hyper-parameters of a run. Each rule reads the ones that it uses.
struct Hyper {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0.0;
  RuleArgs args = {};  ///< optim_args
};

/// Properties of a parameter that rules may use.
struct Param {
  enum class Place : std::uint8_t { layer, embedding, head };
  Shape shape = {};    ///< of the whole tensor: [rows, columns] of a matrix; [matrices, rows, columns] of a stack
  bool stack = false;  ///< for three dimensions: the first counts matrices, as for experts
  Place place = Place::layer;
  /// How tensor ranks cut it: by rows (each box has whole rows of the first dimension) or by columns.
  enum class Cut : std::uint8_t { none, rows, columns } cut = Cut::none;

  bool is_cut() const { return cut != Cut::none; }
  bool is_matrix() const { return shape.size() == 2 || (shape.size() == 3 && stack); }
  std::int64_t numel() const;
  /// Returns [matrices, rows, columns] for a matrix or stack, [1, 1, elements] for others.
  Shape as_stack() const;
};

/// A parameter's range [begin, end) in its unit's flat buffer, with factors on the run's learning rate and weight decay.
struct Segment {
  std::int64_t begin = 0, end = 0;
  double lr_factor = 1.0;
  double decay_factor = 1.0;    ///< 0 for norms and biases
  Param param = {};             ///< no shape: a vector
  std::vector<Box> boxes = {};  ///< if the parameter is cut: this rank's, which lie one after the other in the range
  std::int64_t number = -1;     ///< unique in the unit, the same on any number of ranks; -1: `begin`
};

/// A state tensor of a parameter; initially zero.
struct StateSpec {
  std::string_view name;  ///< in checkpoints "<name>.<parameter>"
  at::ScalarType type = at::kFloat;
  Shape shape = {};  ///< of the whole tensor
  /// Consecutive parameter elements per state element, which lives with the first of them. 0: the parameter's owner holds the
  /// whole state.
  std::int64_t block_size = 1;

  std::int64_t numel() const;
  std::int64_t bytes() const;
  /// Returns the boxes of the state that belong to these boxes of a parameter of this shape, one after the other: all of it if
  /// its owner holds it. Blocks must not be cut by the boxes.
  std::vector<Box> boxes_of(const Shape& param, const std::vector<Box>& boxes) const;
};

/// One step of a part of one segment. The tensors are 1-D, contiguous and of equal length; all except `copy` are on one device.
struct Update {
  at::Tensor master;              ///< weights to update
  at::Tensor grads;               ///< may be overwritten
  std::vector<at::Tensor> state;  ///< in the order of RuleSpec::states(); only the elements that belong to this part
  at::Tensor copy;                ///< compute copy of the weights, if the master is another tensor; otherwise undefined
  double learning_rate = 0.0;     ///< the segment's
  double weight_decay = 0.0;      ///< the segment's
  double grad_scale = 1.0;        ///< factor for the gradients
  std::int64_t step = 1;          ///< from 1
  std::int64_t first = 0;         ///< index in the parameter of the tensors' first element
  std::int64_t numel = 0;         ///< elements of the whole parameter
  std::size_t buffer = 0;         ///< index of the unit's buffer
  std::int64_t position = 0;      ///< index in the buffer of the tensors' first element
};

/// The update of a whole parameter on its owner.
struct WholeUpdate {
  at::Tensor values;  ///< Param::as_stack(), contiguous: holds the gradients; the rule replaces them by the values to subtract
  std::vector<at::Tensor> state;  ///< states with StateSpec::block_size 0, in the order of RuleSpec::states()
  std::int64_t step = 1;
  std::uint64_t parameter = 0;  ///< unique index of the parameter, the same on any number of ranks
};

/// The ranks that share the buffers: rank slice * tensor_ranks + tensor rank has this slice, of `chunks[buffer]` elements, of
/// this tensor rank's buffers. Parameters that are not cut begin at the same element of a buffer on all tensor ranks, and have
/// the same gradients there.
struct Slices {
  comm::Communicator* comm = nullptr;  ///< for the gradients' memory; null: one rank has everything
  c10::Device device = at::kCPU;
  std::vector<std::int64_t> chunks;  ///< by buffer
  int tensor_ranks = 1;              ///< ranks that share matrices

  bool shared() const;
  /// Returns the number of slices of a buffer.
  int count() const;
};

class Rule {
 public:
  virtual ~Rule() = default;
  /// Updates masters and state of any part of a parameter that is not whole(). Returns whether it also wrote `copy`.
  virtual bool step(const Update& update) = 0;
  /// Called after step() of all parts: combines values that parts on several ranks share. Collective over `slices`.
  virtual void agree(const Slices& /*slices*/) {}

  /// For parameters that are whole(): prepares a part before it is sent to the owner. `grads` then holds the values to send.
  virtual void prepare(const Update& update) { update.grads.mul_(update.grad_scale); }
  /// For the owner: replaces `values`. The update is master * (1 - learning rate * decay) - learning rate * values.
  virtual void compute_update(const WholeUpdate& /*update*/) {}
};

/// Static properties of a rule. Its source file sets all of them except the names, which come from config/optimizers.h.
struct RuleSpec {
  std::string_view name = {};                ///< the name that its authors use
  std::vector<std::string_view> optim = {};  ///< values of the key `optim` that select it
  std::vector<std::string_view> state = {};  ///< names of the element-wise state, of type Precision::state
  std::unique_ptr<Rule> (*make)(const Hyper& hyper) = nullptr;
  std::vector<std::string_view> args = {};  ///< the words of optim_args that it accepts
  /// Returns the state of one parameter, if it differs between parameters. Null: as in `state`.
  std::vector<StateSpec> (*state_of)(const Param&, const Hyper&, const Precision&) = nullptr;
  /// Returns whether the update of a parameter needs its whole gradient at once. Null: never.
  bool (*whole)(const Param&) = nullptr;
  double (*operations)(const Param&) = nullptr;  ///< operations of Rule::compute_update(); null: negligible

  /// True if adjacent parameters are updated as one.
  bool is_uniform() const { return state_of == nullptr && whole == nullptr; }
  std::vector<StateSpec> states(const Param& param, const Hyper& hyper, const Precision& precision) const;
  /// Returns the state bytes of one parameter, without its master.
  std::int64_t state_bytes(const Param& param, const Hyper& hyper, const Precision& precision) const;
};

/// Returns the rules in the order of config::kOptimizers.
std::span<const RuleSpec> rules();

/// Returns the rule for a value of the key `optim`. Throws ConfigError for an unknown value.
const RuleSpec& rule_of(std::string_view optim);

/// Returns states that are laid out like the parameter, of type Precision::state.
std::vector<StateSpec> elementwise(std::span<const std::string_view> names, const Param& param, const Precision& precision);

}  // namespace qft::optim
