// The heads with which a delta net mixes tokens, by convolution, gates and rule: all heads of a rank's rows, or those of which
// the rank sees whole sequences. Private to model.
#pragma once

#include "qft/model/config.h"
#include "qft/model/sequence_heads.h"
#include "qft/ops/delta_gates.h"
#include "qft/ops/gated_delta.h"

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

namespace qft::model {

/// Views of rows [T, q | k | v | ... | b | a] and of weights, both for these heads.
class DeltaMixer {
 public:
  /// All heads of a rank, in projected rows: q | k | v | gate | b | a.
  explicit DeltaMixer(const DeltaNetConfig& rank) : d_(rank), rank_(rank), gates_(rank.channels() + rank.values()) {}
  /// Some of a rank's heads, in exchanged rows: q | k | v | b | a.
  DeltaMixer(const DeltaNetConfig& rank, const SequenceHeads& heads) : d_(rank), rank_(rank), some_(heads) {
    d_.key_heads = heads.num_key_heads();
    d_.value_heads = heads.heads.count;
    gates_ = d_.channels();
  }

  /// The configuration with these heads.
  const DeltaNetConfig& config() const { return d_; }
  ops::DeltaShape shape() const { return {d_.key_heads, d_.value_heads, d_.key_dim, d_.value_dim}; }

  /// Returns the convolution's input.
  at::Tensor mixed(const at::Tensor& rows) const { return rows.narrow(1, 0, d_.channels()); }
  ops::DeltaGateInputs gate_inputs(const at::Tensor& rows, const at::Tensor& a_log, const at::Tensor& dt_bias) const {
    return {rows.narrow(1, gates_ + d_.value_heads, d_.value_heads), rows.narrow(1, gates_, d_.value_heads), of_heads(a_log),
            of_heads(dt_bias)};
  }
  at::Tensor heads(const at::Tensor& values) const { return values.unflatten(1, {d_.value_heads, d_.value_dim}); }
  /// Returns q, k and v of rows, before or after the convolution.
  ops::GatedDeltaTensors split(const at::Tensor& rows) const {
    const std::int64_t keys = d_.key_heads * d_.key_dim;
    const auto key_heads = [&](std::int64_t first) {
      return rows.narrow(1, first, keys).unflatten(1, {d_.key_heads, d_.key_dim});
    };
    return {key_heads(0), key_heads(keys), heads(rows.narrow(1, 2 * keys, d_.values())), {}, {}};
  }
  ops::GatedDeltaTensors operands(const at::Tensor& convolved, const at::Tensor& decay, const at::Tensor& beta) const {
    ops::GatedDeltaTensors t = split(convolved);
    t.g = decay;
    t.beta = beta;
    return t;
  }

  /// Returns the filters of these heads [channels, taps]: a view, or a copy if they are some of the rank's.
  at::Tensor filters(const at::Tensor& weight) const { return some_ ? at::cat(filter_parts(weight)) : of_channels(weight); }
  /// Returns the memory in which their gradient is accumulated; undefined if `grad` of all filters is.
  at::Tensor filter_gradient(const at::Tensor& grad) const {
    if (!some_ || !grad.defined()) return of_channels(grad);
    return at::zeros({d_.channels(), d_.taps}, grad.options());
  }
  /// Adds the result of filter_gradient() to `grad`, unless it is a view of it.
  void add_filter_gradient(const at::Tensor& some, const at::Tensor& grad) const {
    if (!some_ || !grad.defined()) return;
    std::int64_t first = 0;
    for (const at::Tensor& part : filter_parts(grad)) {
      part.add_(some.narrow(0, first, part.size(0)));
      first += part.size(0);
    }
  }

 private:
  at::Tensor of_channels(const at::Tensor& weight) const {
    return weight.defined() ? weight.view({rank_.channels(), rank_.taps}) : weight;
  }
  /// Returns these heads' part of a tensor with an element for each value head of the rank.
  at::Tensor of_heads(const at::Tensor& all) const {
    return some_ && all.defined() ? all.narrow(0, some_->heads.begin, some_->heads.count) : all;
  }
  /// Returns views of these heads' filters: q's, k's, v's.
  std::vector<at::Tensor> filter_parts(const at::Tensor& weight) const {
    const at::Tensor all = of_channels(weight);
    const std::int64_t keys = rank_.key_heads * rank_.key_dim;
    std::vector<at::Tensor> parts;
    for (const std::int64_t first : {std::int64_t{0}, keys})
      for (const std::int64_t head : some_->key_heads) parts.push_back(all.narrow(0, first + head * d_.key_dim, d_.key_dim));
    parts.push_back(all.narrow(0, 2 * keys + some_->heads.begin * d_.value_dim, some_->heads.count * d_.value_dim));
    return parts;
  }

  DeltaNetConfig d_, rank_;
  std::int64_t gates_ = 0;  ///< column of b; a follows
  std::optional<SequenceHeads> some_;
};

}  // namespace qft::model
