// The language-model head: log-probabilities of label tokens only, in chunks; no [T, vocab] tensor ever
// exists. As in transformers, logits are rounded to the data's dtype and the softmax is computed in fp32 (fp64 for fp64 data).
#pragma once

#include "qft/ops/workspace.h"

#include <cstdint>
#include <functional>

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// The label tokens of a batch: targets[i] is predicted from hidden row rows[i].
struct HeadLabels {
  at::Tensor rows;     ///< int32 [L], strictly increasing (so one label a row), on x's device
  at::Tensor targets;  ///< int32 [L], each in [0, V), on x's device
  std::int64_t size() const { return rows.size(0); }
};

/// Rows of logits held at a time for a vocabulary of this size; and the fewest that still make efficient products.
std::int64_t head_chunk_rows(std::int64_t vocab_size);
inline constexpr std::int64_t kFewestChunkRows = 64;

/// Some labels in turn, while their rows of logits are there.
struct HeadChunk {
  std::int64_t first = 0;  ///< its first label's number
  at::Tensor logits;       ///< [n, V], x's dtype
  at::Tensor targets;      ///< int32 [n]
  at::Tensor logprobs;     ///< [n], of the targets
  at::Tensor reference;    ///< [n, V], the reference's logits, where RowReader has it
  std::int64_t size() const { return targets.size(0); }
};

/// What looks at rows of logits.
struct RowReader {
  /// Is called for one chunk after the other, before the gradient of its log-probabilities is used, which it may fill in. It
  /// returns what is to be added to the gradient of the logits, [n, V]; undefined: nothing. Empty: nobody looks.
  std::function<at::Tensor(const HeadChunk& chunk)> read = {};
  at::Tensor reference = {};         ///< [L, E], the labels' rows of another x, whose logits the chunks have; or undefined
  at::Tensor reference_weight = {};  ///< [V, E], the weight that makes them; undefined: the same as x's
};

/// logprobs[i] = log softmax(weight x[rows[i]])[targets[i]].
///   x         [T, D], after the final norm
///   weight    [V, D]
///   logprobs  [L], fp64 for fp64 data, else fp32
/// `chunk_rows`: rows of logits held at a time; 0: head_chunk_rows().
void head_forward(const at::Tensor& x, const at::Tensor& weight, const HeadLabels& labels, const at::Tensor& logprobs,
                  Workspace& workspace, std::int64_t chunk_rows = 0, const RowReader& reader = {});

/// Gradients from those of the log-probabilities; the logits are computed again.
///   grad_logprobs  [L], dtype of logprobs
///   gx             [T, D]: written, zero in rows that predict nothing
///   gweight        [V, D], accumulated, weight's dtype or a wider one; undefined: frozen
void head_backward(const at::Tensor& x, const at::Tensor& weight, const HeadLabels& labels, const at::Tensor& grad_logprobs,
                   const at::Tensor& gx, const at::Tensor& gweight, Workspace& workspace);

/// Both in one pass over the logits, for objectives whose grad_logprobs depend on nothing (cross-entropy) or on a label's own row
/// of logits: then `reader` fills them in. Arguments as above.
void head_forward_backward(const at::Tensor& x, const at::Tensor& weight, const HeadLabels& labels,
                           const at::Tensor& grad_logprobs, const at::Tensor& logprobs, const at::Tensor& gx,
                           const at::Tensor& gweight, Workspace& workspace, std::int64_t chunk_rows = 0,
                           const RowReader& reader = {});

}  // namespace qft::ops
