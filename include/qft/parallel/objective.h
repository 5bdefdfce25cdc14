// What the log-probabilities of label tokens are for. The head computes them; an objective says what follows.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "qft/model/transformer.h"

namespace qft::parallel {

class Objective {
 public:
  virtual ~Objective() = default;
  /// d(loss) / d(log-probability) of micro-batch `micro`'s labels into grad [L]; known before the head runs.
  virtual void grad_logprobs(int micro, const model::MicroInput& in, const at::Tensor& grad) = 0;
  /// The log-probabilities [L] of the labels, valid during the call.
  virtual void observe(int micro, const model::MicroInput& in, const at::Tensor& logprobs) = 0;
};

/// Cross-entropy, averaged over the label tokens of the global batch (`denominator`, from the loader).
class TokenMeanLoss final : public Objective {
 public:
  explicit TokenMeanLoss(double denominator) : denominator_(denominator) {}
  void grad_logprobs(int micro, const model::MicroInput& in, const at::Tensor& grad) override;
  void observe(int micro, const model::MicroInput& in, const at::Tensor& logprobs) override;
  /// The micro-batches' shares of the mean, in the order in which they were observed: those of all ranks add up to the
  /// loss.
  std::vector<double> losses() const;

 private:
  double denominator_;
  std::vector<at::Tensor> sums_;  ///< fp64 scalars on the device: read at once, at the end
};

}  // namespace qft::parallel
