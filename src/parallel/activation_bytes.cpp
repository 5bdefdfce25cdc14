#include "qft/parallel/activation_bytes.h"

#include <algorithm>

namespace qft::parallel {

namespace {

/// The rows that a rank computes in sub-layers with cut matrices, and those that it holds between sub-layers.
struct Rows {
  std::int64_t here, own;
};
Rows rows_of(const model::ModelSpec& spec, std::int64_t tokens, bool all_rows) {
  if (all_rows) return {tokens, tokens};
  const std::int64_t here = spec.context.room(tokens);
  return {here, spec.share.room(here)};
}

/// Bytes that a layer keeps for its backward pass in addition to its input.
std::int64_t saved_bytes(const model::ModelSpec& spec, const model::Layer& layer, at::ScalarType compute, std::int64_t tokens,
                         bool all_rows = false) {
  const auto item = static_cast<std::int64_t>(c10::elementSize(compute));
  const auto [here, own] = rows_of(spec, tokens, all_rows);
  const std::int64_t statistic = compute == at::kDouble ? 8 : 4;
  std::int64_t bytes = -own * spec.config.hidden_size * item;  // the first sub-layer's input is the layer's input
  for (const model::SubLayerSpec& sublayer : layer) {
    const std::int64_t rows = sublayer.on_own_rows ? own : here;
    bytes += own * (spec.config.hidden_size * item + statistic);
    for (const model::SavedSpec& saved : sublayer.saved)
      bytes += (saved.of_norm        ? own
                : saved.of_sequences ? tokens
                                     : rows) *
               saved.columns *
               (saved.type == model::SavedType::statistic ? statistic
                : saved.type == model::SavedType::index   ? 4
                                                          : item);
    for (const model::ParamGroup* group : sublayer.linears())
      for (const model::LoraRows& part : group->lora) bytes += rows * part.saved_columns() * group->stack.per_token * item;
  }
  return bytes;
}

/// Bytes of each token's cosines, sines and row number, if the angles depend on the sequence length
/// (Transformer::dynamic_angles).
std::int64_t angle_bytes(const model::ModelSpec& spec, at::ScalarType compute, std::int64_t tokens) {
  if (!spec.config.rope.scales_for(tokens)) return 0;
  return tokens * (spec.config.rotary_dim() * (compute == at::kDouble ? 8 : 4) + 4);
}

}  // namespace

std::int64_t activation_bytes(const model::ModelSpec& spec, at::ScalarType compute, std::int64_t tokens, bool recompute,
                              bool offloaded) {
  const std::int64_t boundary = boundary_bytes(spec, compute, tokens);  // a layer's output, which is the next layer's input
  std::int64_t bytes = forward_bytes(spec, compute, tokens);  // the embedding's output, and the gradient that flows down
  if (recompute && offloaded) return bytes + boundary;
  // Block i + 1 is layer i. Layers below the lowest trained block alternate between two output buffers.
  const auto lowest = static_cast<std::size_t>(std::max(spec.lowest_trained_block() - 1, 0));
  if (lowest > 0) bytes += boundary;
  for (std::size_t i = lowest; i < spec.layers.size(); ++i)
    bytes += boundary + (recompute ? 0 : saved_bytes(spec, spec.layers[i], compute, tokens));
  return bytes;
}

std::int64_t forward_bytes(const model::ModelSpec& spec, at::ScalarType compute, std::int64_t tokens, bool all_rows) {
  return 2 * boundary_bytes(spec, compute, tokens, all_rows) + angle_bytes(spec, compute, tokens);
}

std::int64_t boundary_bytes(const model::ModelSpec& spec, at::ScalarType compute, std::int64_t tokens, bool all_rows) {
  return rows_of(spec, tokens, all_rows).own * spec.config.hidden_size * static_cast<std::int64_t>(c10::elementSize(compute));
}

std::int64_t recomputed_layer_bytes(const model::ModelSpec& spec, at::ScalarType compute, std::int64_t tokens, bool all_rows) {
  std::int64_t most = 0;
  for (const model::Layer& layer : spec.layers) most = std::max(most, saved_bytes(spec, layer, compute, tokens, all_rows));
  return most + boundary_bytes(spec, compute, tokens, all_rows);
}

}  // namespace qft::parallel
