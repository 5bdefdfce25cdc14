// Optimizer rules: the update of each element, and the state that is kept for it. A rule is a file of its own and a row
// of the table in src/optim/rules.cpp, which snapshots, resuming, memory plans and the simulation of a step read.
#pragma once

#include "qft/optim/precision.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::optim {

/// The hyper-parameters of a run. A rule reads those that it has.
struct Hyper {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0.0;  ///< decoupled from the gradient
};

/// A range [begin, end) of a flat buffer that has the run's learning rate and weight decay times factors of its own.
struct Segment {
  std::int64_t begin = 0, end = 0;
  double lr_factor = 1.0;
  double decay_factor = 1.0;  ///< 0 for norms and biases
};

/// One segment in one step: tensors of one length, 1-D and contiguous, on one device but for `copy`.
struct Update {
  at::Tensor master;              ///< what is updated
  at::Tensor grads;               ///< may be written to
  std::vector<at::Tensor> state;  ///< in the order of RuleSpec::state
  at::Tensor copy;                ///< the weights that compute, where the master is another tensor; else undefined
  double learning_rate = 0.0;     ///< the segment's
  double weight_decay = 0.0;      ///< the segment's
  double grad_scale = 1.0;        ///< gradients are multiplied by it
  std::int64_t step = 1;          ///< from 1
};

/// Updates element by element, so that any part of a buffer can be updated alone.
class Rule {
 public:
  virtual ~Rule() = default;
  /// Updates masters and state. Returns whether it also wrote `copy`.
  virtual bool step(const Update& update) = 0;
};

/// What is known of a rule without a model: a row of the table.
struct RuleSpec {
  std::string_view name;                ///< as its authors call it
  std::vector<std::string_view> optim;  ///< values of the key `optim` that mean it
  std::vector<std::string_view>
      state;  ///< the state of each element, by its name in checkpoints; Precision::state, zero at first
  std::unique_ptr<Rule> (*make)(const Hyper& hyper);

  /// Bytes of the state of one element; its master is not among it.
  std::int64_t state_bytes(const Precision& precision) const;
};

/// The table.
std::span<const RuleSpec> rules();

/// The rule that a value of the key `optim` means. Throws ConfigError.
const RuleSpec& rule_of(std::string_view optim);

}  // namespace qft::optim
