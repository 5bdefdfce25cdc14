// Optimizer rules: the update of a parameter, and the state that is kept for it. A rule is a file of its own and a row of the
// table in src/optim/rules.cpp, which snapshots, resuming, memory plans and the simulation of a step read.
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

/// The hyper-parameters of a run. A rule reads those that it has.
struct Hyper {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0.0;
  RuleArgs args = {};  ///< optim_args
};

/// What a rule may know of a parameter.
struct Param {
  enum class Place : std::uint8_t { layer, embedding, head };
  Shape shape = {};    ///< [rows, columns] of a matrix; [matrices, rows, columns] of a stack
  bool stack = false;  ///< of three dimensions the first counts matrices, as of experts
  Place place = Place::layer;

  bool is_matrix() const { return shape.size() == 2 || (shape.size() == 3 && stack); }
  std::int64_t numel() const;
  /// [matrices, rows, columns] of a matrix or stack, [1, 1, elements] of any other.
  Shape as_stack() const;
};

/// A parameter's range [begin, end) of its unit's flat buffer, with factors on the run's learning rate and weight decay.
struct Segment {
  std::int64_t begin = 0, end = 0;
  double lr_factor = 1.0;
  double decay_factor = 1.0;  ///< 0 for norms and biases
  Param param = {};           ///< without a shape: a vector
};

/// A tensor that a rule keeps of a parameter; zero at first.
struct StateSpec {
  std::string_view name;  ///< in checkpoints "<name>.<parameter>"
  at::ScalarType type = at::kFloat;
  Shape shape = {};  ///< of the whole
  /// So many elements of the parameter, in their order, share one of it: who has the first of them has it. 0: its owner has it.
  std::int64_t per = 1;

  std::int64_t numel() const;
  std::int64_t bytes() const;
};

/// A part of one segment in one step: tensors of one length, 1-D and contiguous, on one device but for `copy`.
struct Update {
  at::Tensor master;              ///< what is updated
  at::Tensor grads;               ///< may be written to
  std::vector<at::Tensor> state;  ///< by RuleSpec::states(): the elements that belong to the master's
  at::Tensor copy;                ///< the weights that compute, where the master is another tensor; else undefined
  double learning_rate = 0.0;     ///< the segment's
  double weight_decay = 0.0;      ///< the segment's
  double grad_scale = 1.0;        ///< gradients are multiplied by it
  std::int64_t step = 1;          ///< from 1
  std::int64_t first = 0;         ///< the parameter's element with which the tensors begin
  std::int64_t numel = 0;         ///< elements of the whole parameter
  std::size_t buffer = 0;         ///< number of the unit's buffer
  std::int64_t position = 0;      ///< in it, of the tensors' first element
};

/// A whole parameter at its owner.
struct WholeUpdate {
  at::Tensor values;              ///< Param::as_stack(), contiguous: gradients, and then what is subtracted
  std::vector<at::Tensor> state;  ///< of StateSpec::per 0, in the order of RuleSpec::states()
  std::int64_t step = 1;
  std::uint64_t parameter = 0;  ///< a number of its own, the same on any number of ranks
};

/// The ranks that share the buffers: each has a slice of `chunk(buffer)` elements, by rank.
struct Slices {
  comm::Communicator* comm = nullptr;  ///< of the memory in which the gradients are; null: one rank has all
  c10::Device device = at::kCPU;
  std::vector<std::int64_t> chunks;  ///< by buffer

  bool shared() const;
};

class Rule {
 public:
  virtual ~Rule() = default;
  /// Updates masters and state of any part of a parameter that is not whole() to it. Returns whether it also wrote `copy`.
  virtual bool step(const Update& update) = 0;
  /// After step() of all parts: what parts on several ranks have in common is agreed on. Collective over `slices`.
  virtual void agree(const Slices& /*slices*/) {}

  /// Of parameters that are whole(): any part of one, before it is sent to its owner. Leaves in `grads` what is sent.
  virtual void prepare(const Update& update) { update.grads.mul_(update.grad_scale); }
  /// On the owner. The update is master * (1 - learning rate * decay) - learning rate * values.
  virtual void direct(const WholeUpdate& /*update*/) {}
};

/// What is known of a rule without a model: a row of the table.
struct RuleSpec {
  std::string_view name;                     ///< as its authors call it
  std::vector<std::string_view> optim;       ///< values of the key `optim` that mean it
  std::vector<std::string_view> state = {};  ///< names of the state of each element, of type Precision::state
  std::unique_ptr<Rule> (*make)(const Hyper& hyper) = nullptr;
  std::vector<std::string_view> args = {};  ///< the words of optim_args that it takes
  /// Where the state is not the same for every parameter: what there is of one. Null: as `state` says.
  std::vector<StateSpec> (*state_of)(const Param&, const Hyper&, const Precision&) = nullptr;
  /// Parameters whose update needs all of their gradient at once. Null: none.
  bool (*whole)(const Param&) = nullptr;
  double (*operations)(const Param&) = nullptr;  ///< of Rule::direct(); null: none that count

  /// Parameters that lie side by side are updated as one.
  bool is_uniform() const { return state_of == nullptr && whole == nullptr; }
  std::vector<StateSpec> states(const Param& param, const Hyper& hyper, const Precision& precision) const;
  /// Of one parameter; its master is not among it.
  std::int64_t state_bytes(const Param& param, const Hyper& hyper, const Precision& precision) const;
};

/// The table.
std::span<const RuleSpec> rules();

/// The rule that a value of the key `optim` means. Throws ConfigError.
const RuleSpec& rule_of(std::string_view optim);

/// States that are laid out like the parameter, of type Precision::state.
std::vector<StateSpec> elementwise(std::span<const std::string_view> names, const Param& param, const Precision& precision);

}  // namespace qft::optim
