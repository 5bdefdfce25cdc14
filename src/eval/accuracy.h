// The token accuracy of an evaluation, beside any objective of single samples.
#pragma once

#include "qft/parallel/objective.h"

#include <memory>
#include <string_view>
#include <vector>

namespace qft::eval {

/// Another objective with one metric more, accuracy: the mean over the sequences with labels of the share of a sequence's labels
/// that are the likeliest token of their row, as LLaMA-Factory's ComputeAccuracy has it. Evaluates only.
class WithAccuracy final : public parallel::Objective {
 public:
  explicit WithAccuracy(std::unique_ptr<parallel::Objective> inner);
  parallel::ObjectiveKind kind() const override { return inner_->kind(); }
  double denominator() const override { return inner_->denominator(); }
  std::span<const std::string_view> metrics() const override { return names_; }
  void known_gradient(const model::MicroInput& in, const at::Tensor& grad) const override { inner_->known_gradient(in, grad); }
  std::int64_t row_values() const override { return inner_->row_values() + 1; }
  at::Tensor read_rows(const model::MicroInput& in, const ops::HeadChunk& chunk, const at::Tensor& values,
                       const at::Tensor& grad) const override;
  bool reference_rows() const override { return inner_->reference_rows(); }
  at::Tensor observe(const model::MicroInput& in, const parallel::Logprobs& logprobs, const at::Tensor& grad) const override;

 private:
  std::unique_ptr<parallel::Objective> inner_;
  std::vector<std::string_view> names_;
};

}  // namespace qft::eval
