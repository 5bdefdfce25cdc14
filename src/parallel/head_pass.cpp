#include "head_pass.h"

#include <utility>

#include <ATen/ops/empty.h>

namespace qft::parallel {
namespace {

/// Returns the callback that runs Objective::read_rows() on the head's chunks.
ops::LogitsReader reader(const Objective& objective, const model::MicroInput& in, const at::Tensor& values,
                         const at::Tensor& grad, double loss_scale) {
  const auto read = [&objective, &in, values, grad, loss_scale](const ops::HeadChunk& chunk) {
    const at::Tensor part = grad.defined() ? grad.narrow(0, chunk.first, chunk.size()) : grad;
    const at::Tensor more = objective.read_rows(in, chunk, values.narrow(1, chunk.first, chunk.size()), part);
    if (loss_scale != 1.0)
      for (const at::Tensor& gradient : {part, more})
        if (gradient.defined()) gradient.mul_(loss_scale);
    return more;
  };
  return {read};
}

/// Scratch memory for the head's output of a micro-batch, until the end of the scope, and the reference's columns.
class HeadOutput {
 public:
  /// `objective`: null if none reads rows. `with_grad`: also takes memory for the values' gradient.
  HeadOutput(const HeadBlock& block, const Objective* objective, bool with_grad, double loss_scale, ReferenceLane& lane)
      : scratch_(block.scratch), mark_(scratch_.mark()) {
    const std::int64_t count = block.transformer.head_values(block.in);
    const std::int64_t kept = objective == nullptr ? 0 : objective->row_values();
    const auto room = [&](at::IntArrayRef shape) { return scratch_.alloc(shape, block.transformer.statistics_dtype()); };
    values = room({count});
    if (kept > 0) rows = room({kept, count});
    if (kept > 0 && !block.transformer.context().alone()) rows.zero_();
    if (with_grad) grad = room({count});
    if (kept > 0) logits_reader = reader(*objective, block.in, rows, grad, loss_scale);
    reference = lane.take(block.index);
    if (objective != nullptr && objective->reference_rows()) read_reference_rows(block.in);
    if (!reference.defined()) reference = block.in.columns.find(columns::kReference);
  }
  ~HeadOutput() { scratch_.release(mark_); }
  HeadOutput(const HeadOutput&) = delete;
  HeadOutput& operator=(const HeadOutput&) = delete;

  /// Call after the head has filled `values` and, through its reader, this context rank's part of `rows`.
  Logprobs logprobs(const HeadBlock& block) const {
    if (rows.defined()) block.transformer.context().sum(rows);
    return {values, reference, rows};
  }

  at::Tensor values, rows, grad, reference;
  ops::LogitsReader logits_reader;

 private:
  /// The lane's rows have the policy's head; a separate model's rows come with their own.
  void read_reference_rows(const model::MicroInput& in) {
    if (reference.defined()) {
      logits_reader.reference = std::exchange(reference, {});
      return;
    }
    const model::InputColumn& column = in.columns.at(columns::kReferenceRows);
    logits_reader.reference = column.values;
    logits_reader.reference_weight = column.head;
  }

  model::Arena& scratch_;
  model::Arena::Mark mark_;
};

class Training : public HeadPass {
 public:
  Training(const Objective& objective, double loss_scale, ReferenceLane& lane, std::vector<at::Tensor>& sums)
      : objective_(objective), loss_scale_(loss_scale), lane_(lane), sums_(sums) {}

 protected:
  const Objective& objective_;
  double loss_scale_;
  ReferenceLane& lane_;
  std::vector<at::Tensor>& sums_;
};

/// The gradient of a label is known beforehand, or follows from its own row of logits.
class RowLocalTraining final : public Training {
 public:
  using Training::Training;

  void forward(const HeadBlock& b) override {
    const HeadOutput out(b, &objective_, /*with_grad=*/true, loss_scale_, lane_);
    if (!out.rows.defined()) {
      objective_.known_gradient(b.in, out.grad);
      if (loss_scale_ != 1.0) out.grad.mul_(loss_scale_);
    }
    b.transformer.head_forward_backward(b.units.head(BindMode::gradients), b.in, b.micro.x(), out.grad, out.values, b.micro.g(),
                                        out.logits_reader);
    sums_[b.index] = objective_.observe(b.in, out.logprobs(b), {});
  }
};

/// The gradient depends on whole sequences: backward() computes the head's values again.
class TwoPassTraining final : public Training {
 public:
  using Training::Training;

  void forward(const HeadBlock& b) override {
    const HeadOutput out(b, &objective_, /*with_grad=*/false, loss_scale_, lane_);
    b.transformer.head_forward(b.units.head(BindMode::weights), b.in, b.micro.x(), out.values, out.logits_reader);
    sums_[b.index] = objective_.observe(b.in, out.logprobs(b), b.micro.grad_values(out.values.size(0)));
  }

  void backward(const HeadBlock& b) override {
    const at::Tensor& grad = b.micro.grad_values(b.transformer.head_values(b.in));
    if (loss_scale_ != 1.0) grad.mul_(loss_scale_);
    b.transformer.head_forward_backward(b.units.head(BindMode::gradients), b.in, b.micro.x(), grad, {}, b.micro.g());
  }
};

class Evaluation final : public HeadPass {
 public:
  Evaluation(const Objective* objective, const ObserveLogprobs& observe, ReferenceLane& lane)
      : objective_(objective), observe_(observe), lane_(lane) {}

  void forward(const HeadBlock& b) override {
    const HeadOutput out(b, objective_, /*with_grad=*/false, /*loss_scale=*/1.0, lane_);
    b.transformer.head_forward(b.units.head(BindMode::weights), b.in, b.micro.x(), out.values, out.logits_reader);
    observe_(out.logprobs(b));
  }

 private:
  const Objective* objective_;
  const ObserveLogprobs& observe_;
  ReferenceLane& lane_;
};

/// Returns the labels' rows as the head reads them, in new memory [L, hidden].
at::Tensor label_rows(const HeadBlock& b) {
  at::Tensor rows = at::empty({b.in.labels.size(), b.micro.x().size(1)}, b.micro.x().options());
  b.transformer.head_rows(b.units.head(BindMode::weights), b.in, b.micro.x(), rows);
  return rows;
}

class LabelRows final : public HeadPass {
 public:
  explicit LabelRows(std::vector<at::Tensor>& rows) : rows_(rows) {}
  void forward(const HeadBlock& b) override { rows_[b.index] = label_rows(b); }

 private:
  std::vector<at::Tensor>& rows_;
};

}  // namespace

void ReferenceLane::forward(const HeadBlock& b) {
  if (rows_) {
    kept_[b.index] = label_rows(b);
    return;
  }
  const auto options = at::TensorOptions().device(b.transformer.device()).dtype(b.transformer.statistics_dtype());
  const at::Tensor logprobs = at::empty({b.in.labels.size()}, options);
  b.transformer.head_forward(b.units.head(BindMode::weights), b.in, b.micro.x(), logprobs);
  kept_[b.index] = sequence_sums(b.in, logprobs);
}

std::unique_ptr<HeadPass> training_head(const Objective& objective, double loss_scale, ReferenceLane& lane,
                                        std::vector<at::Tensor>& sums) {
  if (objective.kind() == ObjectiveKind::row_local) return std::make_unique<RowLocalTraining>(objective, loss_scale, lane, sums);
  return std::make_unique<TwoPassTraining>(objective, loss_scale, lane, sums);
}

std::unique_ptr<HeadPass> evaluation_head(const Objective* objective, const ObserveLogprobs& observe, ReferenceLane& lane) {
  return std::make_unique<Evaluation>(objective, observe, lane);
}

std::unique_ptr<HeadPass> rows_head(std::vector<at::Tensor>& rows) {
  return std::make_unique<LabelRows>(rows);
}

}  // namespace qft::parallel
