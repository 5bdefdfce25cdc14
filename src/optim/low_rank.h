// The low-rank space of a matrix' gradient, in which GaLore and APOLLO keep their moments. Private to optim.
#pragma once

#include "qft/optim/rule.h"

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::optim {

/// The words of optim_args that both rules have: rank, update_proj_gap, scale, proj_type, with transformers' defaults.
class LowRank {
 public:
  LowRank(const RuleArgs& args, double scale);

  double scale() const { return scale_; }
  /// Whether the gradient [rows, columns] is multiplied from the right, by vectors as long as its rows.
  bool from_right(std::int64_t rows, std::int64_t columns) const;
  /// Whether the vectors are found anew in this step, from 1.
  bool is_due(std::int64_t step) const { return (step - 1) % interval_ == 0; }

  /// `projector`, `exp_avg` and `exp_avg_sq` of a stack of matrices, each at its owner.
  std::vector<StateSpec> states(const Shape& stack, const Precision& precision) const;

 private:
  std::int64_t rank_, interval_;
  double scale_;
  std::string type_;
};

/// The first singular vectors of `gradient` [rows, columns] into `vectors`: [rank, columns] from the right, else [rows, rank].
void find_singular_vectors(const at::Tensor& gradient, bool right, const at::Tensor& vectors);

/// [rows, rank] from the right, else [rank, columns].
at::Tensor to_low_rank(const at::Tensor& gradient, const at::Tensor& vectors, bool right);

/// AdamW's direction exp_avg / (sqrt(exp_avg_sq) + eps) after both have taken in `low`, without its corrections of the bias.
at::Tensor moments_step(const Hyper& hyper, const at::Tensor& low, const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq);
/// Those corrections: a factor.
double bias_correction(const Hyper& hyper, std::int64_t step);

}  // namespace qft::optim
