// Heads on whole sequences (reward models, classifiers, embedding models, generative rerankers): numbers from one hidden row per
// sequence. All compute in fp32 (fp64 for fp64 data).
#pragma once

#include "qft/ops/vocabulary.h"

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// values[s] = y[s] / max(|y[s]|, 1e-12), as torch's F.normalize.
///   y       [S, D]
///   values  [S * D]; fp64 for fp64 data, else fp32
void vector_head_forward(const at::Tensor& y, const at::Tensor& values);

/// Computes gy [S, D] from the values' gradients grad_values [S * D].
void vector_head_backward(const at::Tensor& y, const at::Tensor& grad_values, const at::Tensor& gy);

/// Two rows of a table of tokens: the score is the logit of `minuend` minus the logit of `subtrahend`.
struct TokenPair {
  std::int32_t minuend = 0, subtrahend = 0;
};

/// values[s] = y[s] . (table[minuend] - table[subtrahend]).
///   table   [V, D]
///   values  [S], as above
/// With a part of the vocabulary: collective, one sum of [D]: every rank gets the difference of the two rows. y has this
/// rank's sequences only, as for the other heads; S may be 0.
void token_difference_forward(const at::Tensor& y, const at::Tensor& table, const TokenPair& tokens, const at::Tensor& values,
                              const VocabularyPart& vocabulary = {});

/// Computes gradients from the values' gradients.
///   gy      [S, D]: written
///   gtable  [V, D]: both rows accumulate; the data's dtype or a wider one; undefined if frozen
/// With a part of the vocabulary: collective, a sum of [D], and one more for gtable. Each sequence's row is on one rank; on the
/// others it is absent or its gradient is zero. A row of the table gets the sequences of all ranks.
void token_difference_backward(const at::Tensor& y, const at::Tensor& table, const TokenPair& tokens,
                               const at::Tensor& grad_values, const at::Tensor& gy, const at::Tensor& gtable,
                               const VocabularyPart& vocabulary = {});

/// values[s] = weight y[s] + bias.
///   y       [S, D]
///   weight  [N, D]; bias [N], or undefined for none
///   values  [S * N], a sequence's numbers side by side; fp64 for fp64 data, else fp32
void value_head_forward(const at::Tensor& y, const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& values);

/// Computes gradients from the values' gradients.
///   grad_values     [S * N], dtype of the values
///   gy              [S, D]: written
///   gweight, gbias  [N, D], [N]: accumulated, the data's dtype or a wider one; undefined if frozen or absent
void value_head_backward(const at::Tensor& y, const at::Tensor& weight, const at::Tensor& grad_values, const at::Tensor& gy,
                         const at::Tensor& gweight, const at::Tensor& gbias);

}  // namespace qft::ops
