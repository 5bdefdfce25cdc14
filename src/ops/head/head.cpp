#include "qft/ops/head.h"

#include "qft/core/error.h"
#include "qft/ops/generic.h"
#include "qft/ops/linear.h"
#include "qft/ops/token_sums.h"

#include <algorithm>
#include <array>

#include "../common/device_kernels.h"
#include "../common/flush_denormals_cpu.h"
#include "../common/tensors_cpu.h"
#include "../linear/matmul.h"
#include <ATen/TensorOperators.h>

namespace qft::ops {
namespace {

/// Logit rows per chunk: enough for efficient matmuls, and small compared with the activations.
constexpr std::int64_t kMinChunkRows = 256, kMaxChunkRows = 512, kRowMultiple = kMinEfficientRows;
constexpr std::int64_t kChunkElements = std::int64_t{1} << 24;

void check(const at::Tensor& x, const at::Tensor& weight, const HeadLabels& labels, const VocabularyPart& vocabulary) {
  const std::int64_t own = weight.size(0), known = vocabulary.tokens(own);
  QFT_ASSERT(labels.targets.size(0) == labels.size(), "{} rows for {} targets", labels.size(), labels.targets.size(0));
  QFT_ASSERT(own > 0 && vocabulary.first >= 0 && vocabulary.first + own <= known,
             "the head has rows for tokens {} to {} of a vocabulary of {}", vocabulary.first, vocabulary.first + own, known);
  if (!x.is_cpu()) return;
  const auto* rows = labels.rows.const_data_ptr<std::int32_t>();
  const auto* targets = labels.targets.const_data_ptr<std::int32_t>();
  for (std::int64_t i = 0; i < labels.size(); ++i) {
    QFT_ASSERT(rows[i] > (i == 0 ? -1 : rows[i - 1]) && rows[i] < x.size(0),
               "label {}: hidden row {} of {} is out of order or range", i, rows[i], x.size(0));
    require(targets[i] >= 0 && targets[i] < known,
            "label token {} is outside the vocabulary of {}: the data was packed with another tokenizer than the model's",
            targets[i], known);
  }
}

/// Calls run(kernels, begin, end) for rows of logits on the CPU's threads. Returns false if the CPU has no kernels for them.
template <class F>
bool on_cpu(const at::Tensor& logits, const F& run) {
  return cpu::with_kernel_type(logits, [&]<class T>() {
    const auto kernels = cpu::cross_entropy_kernels<T>();
    cpu::for_rows(logits.size(0), logits.size(1), [&](std::int64_t begin, std::int64_t end) {
      const cpu::FlushDenormals flushed;
      run(kernels, begin, end);
    });
  });
}

/// Runs generic::cross_entropy_rows, with a kernel if there is one.
void cross_entropy(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& grad_logprobs,
                   const at::Tensor& logprobs) {
  if (on_cpu(logits, [&]<class T>(const cpu::CrossEntropyKernels<T>& kernels, std::int64_t begin, std::int64_t end) {
        kernels.rows(cross_entropy_args<T>(logits, targets, grad_logprobs, logprobs), begin, end);
      }))
    return;
  const DeviceKernels* kernels = device_kernels(logits);
  if (kernels == nullptr || !kernels->cross_entropy_rows(logits, targets, grad_logprobs, logprobs))
    generic::cross_entropy_rows(logits, targets, grad_logprobs, logprobs);
}

/// Runs generic::softmax_statistics, with a kernel if there is one.
void softmax_statistics(const at::Tensor& logits, const at::Tensor& targets, const VocabularyPart& vocabulary,
                        const at::Tensor& statistics) {
  if (on_cpu(logits, [&]<class T>(const cpu::CrossEntropyKernels<T>& kernels, std::int64_t begin, std::int64_t end) {
        kernels.statistics(softmax_statistics_args<T>(logits, targets, vocabulary, statistics), begin, end);
      }))
    return;
  const DeviceKernels* kernels = device_kernels(logits);
  if (kernels == nullptr || !kernels->softmax_statistics(logits, targets, vocabulary, statistics))
    generic::softmax_statistics(logits, targets, vocabulary, statistics);
}

/// Runs generic::softmax_gradient, with a kernel if there is one.
void softmax_gradient(const at::Tensor& logits, const at::Tensor& targets, const VocabularyPart& vocabulary,
                      const at::Tensor& grad_logprobs, const at::Tensor& lse) {
  if (on_cpu(logits, [&]<class T>(const cpu::CrossEntropyKernels<T>& kernels, std::int64_t begin, std::int64_t end) {
        kernels.gradient(softmax_gradient_args<T>(logits, targets, vocabulary, grad_logprobs, lse), begin, end);
      }))
    return;
  const DeviceKernels* kernels = device_kernels(logits);
  if (kernels == nullptr || !kernels->softmax_gradient(logits, targets, vocabulary, grad_logprobs, lse))
    generic::softmax_gradient(logits, targets, vocabulary, grad_logprobs, lse);
}

/// The softmax of a chunk's logits over the whole vocabulary.
class ChunkSoftmax {
 public:
  ChunkSoftmax(const at::Tensor& logits, const at::Tensor& targets, const VocabularyPart& vocabulary, Workspace& workspace)
      : logits_(logits), targets_(targets), vocabulary_(vocabulary), workspace_(workspace) {}

  /// Writes log-probabilities, then overwrites the logits with their gradient; skips what is undefined.
  void run(const at::Tensor& grad_logprobs, const at::Tensor& logprobs) {
    if (!vocabulary_.shared()) return cross_entropy(logits_, targets_, grad_logprobs, logprobs);
    if (!lse_.defined()) reduce();
    if (logprobs.defined()) logprobs.copy_(at_targets_ - lse_);
    if (grad_logprobs.defined()) softmax_gradient(logits_, targets_, vocabulary_, grad_logprobs, lse_);
  }

 private:
  void reduce() {
    const at::Tensor rows =
        workspace_.get("op.head_softmax", {4, logits_.size(0)}, generic::accumulate_dtype(logits_.scalar_type()));
    softmax_statistics(logits_, targets_, vocabulary_, rows.narrow(0, 0, 3));
    const at::Tensor maxima = rows[0], sums = rows[1], own_maxima = rows[3];
    own_maxima.copy_(maxima);
    vocabulary_.maximum(maxima);
    sums.mul_(own_maxima.sub_(maxima).exp_());
    vocabulary_.add(rows.narrow(0, 1, 2));
    lse_ = maxima.add_(sums.log_());
    at_targets_ = rows[2];
  }

  at::Tensor logits_, targets_;
  const VocabularyPart& vocabulary_;
  Workspace& workspace_;
  at::Tensor lse_, at_targets_;  ///< known after the first run
};

at::Tensor reference_logits(const LogitsReader& reader, const at::Tensor& weight, std::int64_t first, std::int64_t count,
                            Workspace& workspace) {
  if (!reader.reference.defined()) return {};
  const at::Tensor& theirs = reader.reference_weight.defined() ? reader.reference_weight : weight;
  QFT_ASSERT(theirs.size(0) == weight.size(0), "the head has {} rows, the reference's {}", weight.size(0), theirs.size(0));
  const at::Tensor logits = workspace.get("op.head_reference", {count, theirs.size(0)}, theirs.scalar_type());
  mm_into(logits, reader.reference.narrow(0, first, count), theirs.t(), workspace);
  return logits;
}

/// One pass in chunks of labels. Skips undefined logprobs, grad_logprobs, gx and gweight.
void run(const HeadForwardBackward& t, Workspace& workspace, std::int64_t chunk_rows, const LogitsReader& reader = {}) {
  const VocabularyPart& vocabulary = t.vocabulary;
  check(t.x, t.weight, t.labels, vocabulary);
  if (t.gx.defined()) t.gx.zero_();
  const std::int64_t step = chunk_rows > 0 ? chunk_rows : head_chunk_rows(vocabulary.tokens(t.weight.size(0)), vocabulary.parts),
                     width = t.x.size(1);
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
    ChunkSoftmax softmax(logits, targets, vocabulary, workspace);
    at::Tensor more;
    if (reader.read) {
      softmax.run({}, of_targets);
      more =
          reader.read({first, logits, targets, of_targets, reference_logits(reader, t.weight, first, n, workspace), vocabulary});
      of_targets = at::Tensor();
    }
    if (grad.defined() || of_targets.defined()) softmax.run(grad, of_targets);
    if (!t.grad_logprobs.defined()) continue;
    if (more.defined()) logits.add_(more);
    if (t.gweight.defined()) add_token_sums(std::array{TokenSum{t.gweight, logits, hidden}}, workspace);
    mm_into(hidden, logits, t.weight, workspace);
    t.gx.index_copy_(0, rows.to(at::kLong), hidden);
  }
}

}  // namespace

std::int64_t head_chunk_rows(std::int64_t vocab_size, std::int64_t parts) {
  const std::int64_t columns = (vocab_size + parts - 1) / parts;  // parts may differ by a column
  const std::int64_t rows = kChunkElements / std::max<std::int64_t>(columns, 1);
  return std::clamp(rows / kRowMultiple * kRowMultiple, kMinChunkRows, kMaxChunkRows);
}

void head_forward(const at::Tensor& x, const at::Tensor& weight, const HeadLabels& labels, const at::Tensor& logprobs,
                  Workspace& workspace, std::int64_t chunk_rows, const LogitsReader& reader, const VocabularyPart& vocabulary) {
  run({.x = x, .weight = weight, .labels = labels, .logprobs = logprobs, .vocabulary = vocabulary}, workspace, chunk_rows,
      reader);
}

void head_backward(const at::Tensor& x, const at::Tensor& weight, const HeadLabels& labels, const at::Tensor& grad_logprobs,
                   const at::Tensor& gx, const at::Tensor& gweight, Workspace& workspace, const VocabularyPart& vocabulary) {
  run({.x = x,
       .weight = weight,
       .labels = labels,
       .grad_logprobs = grad_logprobs,
       .gx = gx,
       .gweight = gweight,
       .vocabulary = vocabulary},
      workspace, 0);
}

void head_forward_backward(const HeadForwardBackward& t, Workspace& workspace, std::int64_t chunk_rows,
                           const LogitsReader& reader) {
  run(t, workspace, chunk_rows, reader);
}

void head_logits(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& logits, Workspace& workspace,
                 const VocabularyPart& vocabulary) {
  const LinearWeights head{weight, {}, {}};
  if (!vocabulary.shared()) return linear_forward(x, head, {}, logits, {}, workspace);
  const std::int64_t n = x.size(0), own = weight.size(0);
  const at::Tensor part = workspace.get("op.head_part", {n, own}, x.scalar_type());
  linear_forward(x, head, {}, part, {}, workspace);
  const at::Tensor all = workspace.get("op.head_all", logits.sizes(), generic::accumulate_dtype(x.scalar_type()));
  all.zero_().narrow(1, vocabulary.first, own).copy_(part);
  vocabulary.add(all);
  logits.copy_(all);
}

}  // namespace qft::ops
