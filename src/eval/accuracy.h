// Adds token accuracy to the metrics of any objective over single samples.
#pragma once

#include "qft/parallel/objective.h"

#include <memory>
#include <string_view>
#include <vector>

namespace qft::eval {

/// Wraps another objective and adds the metric accuracy: per sequence, the share of labels that are the likeliest token of their
/// row; then the mean over sequences with labels, as in LLaMA-Factory's ComputeAccuracy. For evaluation only.
class AccuracyObjective final : public parallel::Objective {
 public:
  explicit AccuracyObjective(std::unique_ptr<parallel::Objective> inner);
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
