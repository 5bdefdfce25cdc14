#include "accuracy.h"

#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/segment_reduce.h>
#include <ATen/ops/stack.h>

namespace qft::eval {

AccuracyObjective::AccuracyObjective(std::unique_ptr<parallel::Objective> inner) : inner_(std::move(inner)) {
  names_.assign(inner_->metrics().begin(), inner_->metrics().end());
  names_.emplace_back("accuracy");
}

at::Tensor AccuracyObjective::read_rows(const model::MicroInput& in, const ops::HeadChunk& chunk, const at::Tensor& values,
                                        const at::Tensor& grad) const {
  const std::int64_t others = inner_->row_values();
  values[others].copy_(chunk.likeliest_tokens().eq(chunk.targets));
  return others > 0 ? inner_->read_rows(in, chunk, values.narrow(0, 0, others), grad) : at::Tensor();
}

at::Tensor AccuracyObjective::observe(const model::MicroInput& in, const parallel::Logprobs& logprobs,
                                      const at::Tensor& grad) const {
  const std::int64_t others = inner_->row_values();
  const parallel::Logprobs theirs{logprobs.policy, logprobs.reference,
                                  others > 0 ? logprobs.rows.narrow(0, 0, others) : at::Tensor()};
  const at::Tensor counts = parallel::label_counts(in);
  const at::Tensor right = at::segment_reduce(logprobs.rows[others].to(at::kDouble), "sum", counts, {}, {}, 0, /*unsafe=*/true);
  const at::Tensor share = right / counts.clamp_min(1);
  return at::cat({inner_->observe(in, theirs, grad), at::stack({share.sum(), counts.gt(0).sum().to(at::kDouble)})});
}

}  // namespace qft::eval
