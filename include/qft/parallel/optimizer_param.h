// A model parameter as the optimizer's rules see it: its description, and the elements that a rank updates or adds to the norm.
#pragma once

#include "qft/model/spec.h"
#include "qft/optim/optimizer.h"
#include "qft/optim/rule.h"
#include "qft/parallel/ranges.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::parallel {

optim::Param optimizer_param(const model::ParamSpec& param);

/// Returns the bytes of a unit's optimizer state on a rank that has `length` elements of its trainable buffer, without master
/// weights. Exact if the rule is uniform; otherwise the proportional share. `tensor_ranks`: ranks that share matrices; they
/// divide the state that owners hold.
std::int64_t state_bytes(const optim::RuleSpec& rule, const optim::Hyper& hyper, const optim::Precision& precision,
                         const model::UnitSpec& unit, std::int64_t length, int tensor_ranks);

/// Returns the ranges that this rank adds to the norm (ParamSpec::first_holder) among elements [begin, begin + length) of the
/// unit's trainable buffer, relative to `begin`. Padding, which is zero, counts with the parameter before it.
Ranges ranges_in_norm(const model::UnitSpec& unit, std::int64_t begin, std::int64_t length);

/// The gradients that this rank counts in the norm, by unit.
class CountedGrads {
 public:
  explicit CountedGrads(std::size_t units) : units_(units) {}
  /// Adds `ranges` of `grads`, gradients of this unit.
  void add(std::size_t unit, const at::Tensor& grads, const Ranges& ranges);
  /// Returns the square sum of each unit. Waits once for the gradients' device.
  std::vector<double> square_sums() const;

 private:
  std::size_t units_;
  std::vector<std::size_t> unit_of_;  ///< of each of `grads_`
  std::vector<at::Tensor> grads_;
};

/// Returns elements [begin, begin + weights.numel()) of the unit's trainable buffer, with a segment for each parameter of the
/// unit.
optim::FlatParams owned_params(const model::UnitSpec& unit, const at::Tensor& weights, const at::Tensor& grads,
                               std::int64_t begin);

}  // namespace qft::parallel
