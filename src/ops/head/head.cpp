#include "qft/ops/head.h"

#include "qft/core/error.h"
#include "qft/ops/generic.h"
#include "qft/ops/token_sums.h"

#include <algorithm>
#include <array>

#include "../common/device_kernels.h"
#include "../common/flush_denormals_cpu.h"
#include "../common/tensors_cpu.h"
#include "../linear/matmul.h"

namespace qft::ops {
namespace {

/// Logit rows per chunk: enough for efficient matmuls, and small compared with the activations.
constexpr std::int64_t kMinChunkRows = 256, kMaxChunkRows = 512, kRowMultiple = kMinEfficientRows;
constexpr std::int64_t kChunkElements = std::int64_t{1} << 24;

void check(const at::Tensor& x, const at::Tensor& weight, const HeadLabels& labels) {
  QFT_ASSERT(labels.targets.size(0) == labels.size(), "{} rows for {} targets", labels.size(), labels.targets.size(0));
  if (!x.is_cpu()) return;
  const auto* rows = labels.rows.const_data_ptr<std::int32_t>();
  const auto* targets = labels.targets.const_data_ptr<std::int32_t>();
  for (std::int64_t i = 0; i < labels.size(); ++i) {
    QFT_ASSERT(rows[i] > (i == 0 ? -1 : rows[i - 1]) && rows[i] < x.size(0),
               "label {}: hidden row {} of {} is out of order or range", i, rows[i], x.size(0));
    require(targets[i] >= 0 && targets[i] < weight.size(0),
            "label token {} is outside the vocabulary of {}: the data was packed with another tokenizer than the model's",
            targets[i], weight.size(0));
  }
}

/// Runs generic::cross_entropy_rows, with a kernel if there is one.
void cross_entropy(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& grad_logprobs,
                   const at::Tensor& logprobs) {
  const bool done = cpu::with_kernel_type(logits, [&]<class T>() {
    const CrossEntropy<T> args = cross_entropy_args<T>(logits, targets, grad_logprobs, logprobs);
    const auto kernels = cpu::cross_entropy_kernels<T>();
    cpu::for_rows(logits.size(0), logits.size(1), [&](std::int64_t begin, std::int64_t end) {
      const cpu::FlushDenormals flushed;
      kernels.rows(args, begin, end);
    });
  });
  if (done) return;
  const DeviceKernels* kernels = device_kernels(logits);
  if (kernels == nullptr || !kernels->cross_entropy_rows(logits, targets, grad_logprobs, logprobs))
    generic::cross_entropy_rows(logits, targets, grad_logprobs, logprobs);
}

at::Tensor reference_logits(const LogitsReader& reader, const at::Tensor& weight, std::int64_t first, std::int64_t count,
                            Workspace& workspace) {
  if (!reader.reference.defined()) return {};
  const at::Tensor& theirs = reader.reference_weight.defined() ? reader.reference_weight : weight;
  const at::Tensor logits = workspace.get("op.head_reference", {count, theirs.size(0)}, theirs.scalar_type());
  mm_into(logits, reader.reference.narrow(0, first, count), theirs.t(), workspace);
  return logits;
}

/// One pass in chunks of labels. Skips undefined logprobs, grad_logprobs, gx and gweight.
void run(const HeadForwardBackward& t, Workspace& workspace, std::int64_t chunk_rows, const LogitsReader& reader = {}) {
  check(t.x, t.weight, t.labels);
  if (t.gx.defined()) t.gx.zero_();
  const std::int64_t step = chunk_rows > 0 ? chunk_rows : head_chunk_rows(t.weight.size(0)), width = t.x.size(1);
  for (std::int64_t first = 0; first < t.labels.size(); first += step) {
    const std::int64_t n = std::min(step, t.labels.size() - first);
    auto slice = [&](const at::Tensor& all) { return all.defined() ? all.narrow(0, first, n) : all; };
    const at::Tensor rows = slice(t.labels.rows);
    at::Tensor hidden = workspace.get("op.head_hidden", {n, width}, t.x.scalar_type());
    at::index_select_out(hidden, t.x, 0, rows);
    const at::Tensor logits = workspace.get("op.head_logits", {n, t.weight.size(0)}, t.x.scalar_type());
    mm_into(logits, hidden, t.weight.t(), workspace);
    const at::Tensor targets = slice(t.labels.targets), grad = slice(t.grad_logprobs);
    at::Tensor of_targets = slice(t.logprobs);
    at::Tensor more;
    if (reader.read) {
      cross_entropy(logits, targets, {}, of_targets);
      more = reader.read({first, logits, targets, of_targets, reference_logits(reader, t.weight, first, n, workspace)});
      of_targets = at::Tensor();
    }
    if (grad.defined() || of_targets.defined()) cross_entropy(logits, targets, grad, of_targets);
    if (!t.grad_logprobs.defined()) continue;
    if (more.defined()) logits.add_(more);
    if (t.gweight.defined()) add_token_sums(std::array{TokenSum{t.gweight, logits, hidden}}, workspace);
    mm_into(hidden, logits, t.weight, workspace);
    t.gx.index_copy_(0, rows.to(at::kLong), hidden);
  }
}

}  // namespace

std::int64_t head_chunk_rows(std::int64_t vocab_size) {
  const std::int64_t rows = kChunkElements / std::max<std::int64_t>(vocab_size, 1);
  return std::clamp(rows / kRowMultiple * kRowMultiple, kMinChunkRows, kMaxChunkRows);
}

void head_forward(const at::Tensor& x, const at::Tensor& weight, const HeadLabels& labels, const at::Tensor& logprobs,
                  Workspace& workspace, std::int64_t chunk_rows, const LogitsReader& reader) {
  run({.x = x, .weight = weight, .labels = labels, .logprobs = logprobs}, workspace, chunk_rows, reader);
}

void head_backward(const at::Tensor& x, const at::Tensor& weight, const HeadLabels& labels, const at::Tensor& grad_logprobs,
                   const at::Tensor& gx, const at::Tensor& gweight, Workspace& workspace) {
  run({.x = x, .weight = weight, .labels = labels, .grad_logprobs = grad_logprobs, .gx = gx, .gweight = gweight}, workspace, 0);
}

void head_forward_backward(const HeadForwardBackward& t, Workspace& workspace, std::int64_t chunk_rows,
                           const LogitsReader& reader) {
  run(t, workspace, chunk_rows, reader);
}

}  // namespace qft::ops
