// The language-model head: log-probabilities of label tokens only, in chunks, so that no [T, vocab] tensor ever exists. As in
// transformers, logits are rounded to the data's dtype and the softmax is computed in fp32 (fp64 for fp64 data). Ranks may share
// the vocabulary: each then has V rows of it, computes V columns of the logits, and gets all log-probabilities.
#pragma once

#include "qft/ops/vocabulary.h"
#include "qft/ops/workspace.h"

#include <cstdint>
#include <functional>

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// The label tokens of a batch: hidden row rows[i] predicts targets[i].
struct HeadLabels {
  at::Tensor rows;     ///< int32 [L], strictly increasing (so one label per row), on x's device
  at::Tensor targets;  ///< int32 [L], tokens of the whole vocabulary, on x's device
  std::int64_t size() const { return rows.size(0); }
};

/// Returns the number of logit rows per chunk, the same on all ranks that share a vocabulary of `vocab_size` tokens in `parts`
/// parts. Products with fewer than kMinEfficientRows rows are inefficient.
std::int64_t head_chunk_rows(std::int64_t vocab_size, std::int64_t parts = 1);
inline constexpr std::int64_t kMinEfficientRows = 64;

/// Consecutive labels of a batch, while their logits exist. If ranks share the vocabulary, the functions are collective over
/// them.
struct HeadChunk {
  std::int64_t first = 0;  ///< index of its first label
  at::Tensor logits;       ///< [n, V], x's dtype: the logits of tokens vocabulary.first + [0, V)
  at::Tensor targets;      ///< int32 [n]
  at::Tensor logprobs;     ///< [n], log-probabilities of the targets
  at::Tensor reference;    ///< [n, V], the reference's logits, if LogitsReader provides a reference
  VocabularyPart vocabulary = {};

  std::int64_t size() const { return targets.size(0); }
  std::int64_t vocabulary_size() const { return vocabulary.tokens(logits.size(1)); }

  /// Replace `t`, which each rank has computed from its columns, by the sum or the maxima over the ranks. `t`: contiguous, fp32
  /// or fp64, any shape.
  void sum_over_vocabulary(const at::Tensor& t) const;
  void max_over_vocabulary(const at::Tensor& t) const;
  /// Returns this rank's columns [n, V] of the log-softmax over the whole vocabulary, in type fp32 or fp64. `rows`: logits or
  /// reference.
  at::Tensor log_softmax(const at::Tensor& rows, at::ScalarType type) const;
  /// Returns the token with the largest logit of each row: int64 [n]; of equal logits the lowest token.
  at::Tensor likeliest_tokens() const;
  /// Returns the `count` largest logits of each row in falling order (fewer if the vocabulary is smaller): [n, count].
  at::Tensor largest_logits(std::int64_t count) const;
};

/// A callback on rows of logits.
struct LogitsReader {
  /// Called for each chunk in order, before the gradient of the chunk's log-probabilities is used; the callback may fill that
  /// gradient in. Returns a term to add to the gradient of the logits, [n, V]; undefined: nothing. Empty: no callback.
  std::function<at::Tensor(const HeadChunk& chunk)> read = {};
  /// [L, E], the labels' rows of the reference's hidden states, for HeadChunk::reference; or undefined
  at::Tensor reference = {};
  /// [V, E], the reference's head weight, of the same tokens; undefined: the head's own weight
  at::Tensor reference_weight = {};
};

/// logprobs[i] = log softmax(weight x[rows[i]])[targets[i]].
///   x         [T, D], after the final norm
///   weight    [V, D]
///   logprobs  [L], fp64 for fp64 data, else fp32
/// `chunk_rows`: logit rows per chunk; 0: head_chunk_rows().
/// `vocabulary`: this rank's part, if ranks share the vocabulary. The call is then collective over them, with the same x, labels
/// and chunk_rows, and makes two reductions per chunk of n rows: maxima [n]; sums of exponentials and the targets' logits [2, n].
void head_forward(const at::Tensor& x, const at::Tensor& weight, const HeadLabels& labels, const at::Tensor& logprobs,
                  Workspace& workspace, std::int64_t chunk_rows = 0, const LogitsReader& reader = {},
                  const VocabularyPart& vocabulary = {});

/// Computes gradients from the log-probabilities' gradients. Recomputes the logits, with the same reductions.
///   grad_logprobs  [L], dtype of logprobs
///   gx             [T, D]: written; rows without a label become zero. With a part of the vocabulary: this part's term, to be
///                  added up over the ranks
///   gweight        [V, D], accumulated, weight's dtype or a wider one; undefined: frozen
void head_backward(const at::Tensor& x, const at::Tensor& weight, const HeadLabels& labels, const at::Tensor& grad_logprobs,
                   const at::Tensor& gx, const at::Tensor& gweight, Workspace& workspace, const VocabularyPart& vocabulary = {});

/// Arguments as above.
struct HeadForwardBackward {
  at::Tensor x, weight;
  HeadLabels labels;
  at::Tensor grad_logprobs = {}, logprobs = {}, gx = {}, gweight = {};
  VocabularyPart vocabulary = {};
};
/// Forward and backward in one pass over the logits. For objectives with a constant grad_logprobs (cross-entropy), or one that
/// depends only on the label's own row of logits: `reader` then fills grad_logprobs in.
void head_forward_backward(const HeadForwardBackward& tensors, Workspace& workspace, std::int64_t chunk_rows = 0,
                           const LogitsReader& reader = {});

/// logits[i] = weight x[i] over the whole vocabulary, on every rank.
///   x       [n, D], after the final norm
///   logits  [n, tokens of the whole vocabulary], x's dtype
/// With a part of the vocabulary: collective, one sum of [n, tokens].
void head_logits(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& logits, Workspace& workspace,
                 const VocabularyPart& vocabulary = {});

}  // namespace qft::ops
