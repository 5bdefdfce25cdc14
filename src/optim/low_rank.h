// The low-rank space of a matrix's gradient, in which GaLore and APOLLO keep their moments. Private to optim.
#pragma once

#include "qft/optim/rule.h"

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::optim {

/// The words of optim_args that both rules accept: rank, update_proj_gap, scale, proj_type, with transformers' defaults.
class LowRank {
 public:
  LowRank(const RuleArgs& args, double scale);

  double scale() const { return scale_; }
  /// Returns whether the gradient [rows, columns] is multiplied from the right, by vectors as long as its rows.
  bool from_right(std::int64_t rows, std::int64_t columns) const;
  /// Returns whether this step (from 1) computes new vectors.
  bool is_due(std::int64_t step) const { return (step - 1) % interval_ == 0; }

  /// Returns the states `projector`, `exp_avg` and `exp_avg_sq` of a stack of matrices, all held by the owner.
  std::vector<StateSpec> states(const Shape& stack, const Precision& precision) const;

 private:
  std::int64_t rank_, interval_;
  double scale_;
  std::string type_;
};

/// Writes the first singular vectors of `gradient` [rows, columns] to `vectors`: [rank, columns] from the right, otherwise [rows,
/// rank].
void find_singular_vectors(const at::Tensor& gradient, bool right, const at::Tensor& vectors);

/// Returns [rows, rank] from the right, otherwise [rank, columns].
at::Tensor to_low_rank(const at::Tensor& gradient, const at::Tensor& vectors, bool right);

/// Adds `low` to both moments and returns AdamW's direction exp_avg / (sqrt(exp_avg_sq) + eps), without bias correction.
at::Tensor moments_step(const Hyper& hyper, const at::Tensor& low, const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq);
/// Returns the bias correction as a factor.
double bias_correction(const Hyper& hyper, std::int64_t step);

}  // namespace qft::optim
