// The descriptions of all sub-layer kinds (without their norms), and the sub-layers of a model's layers. Needs no LibTorch.
// Private to model.
#pragma once

#include "qft/model/config.h"
#include "qft/model/spec.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shared_sizes.h"

namespace qft::model {

/// softmax(q k^T) v over each sequence, causal and within the window (0: none), with grouped query heads and rotary embedding;
/// with norms of q and k and with head gates if the configuration has them.
SubLayerSpec describe_attention(const ModelConfig& config, std::int64_t window, const LayerSplit& split = {});
/// The gated delta rule over each sequence, between a short convolution of q, k and v and a gated norm.
SubLayerSpec describe_delta_net(const ModelConfig& config, const LayerSplit& split = {});
/// down(silu(gate(x)) * up(x)).
SubLayerSpec describe_swiglu(const ModelConfig& config, const LayerSplit& split = {});
/// down(relu(up(x))^2).
SubLayerSpec describe_squared_relu(const ModelConfig& config, const LayerSplit& split = {});
/// The sum over a token's experts of weight * down(silu(gate(x)) * up(x)), with weights from a router; plus a shared expert if
/// the configuration has one. Every tensor rank has all of it, and computes its own rows with it.
SubLayerSpec describe_experts(const ModelConfig& config);
/// Returns true if a linear with this name chooses experts; the target `all` excludes such linears.
bool is_router(std::string_view name);

/// Returns the prefix of a layer's tensor and module names: "model.layers.3.".
std::string layer_prefix(const ModelConfig& config, int index);
/// Returns the module names of a group's linear; for a stack, one per expert.
std::vector<std::string> module_names(const std::string& prefix, const ParamGroup& group, std::size_t linear);
/// Returns the file tensors of these linears for each expert of a stack, each `rows` (0: the linear's rows) x columns, with names
/// ending in `suffix`.
std::vector<FileTensor> expert_tensors(const std::string& prefix, const ParamGroup& group,
                                       const std::vector<std::size_t>& linears, const std::string& suffix, std::int64_t rows,
                                       std::int64_t columns);
/// Returns the sub-layers of layer `index`, in order, each with its norm. Throws ConfigError if the ranks cannot share it.
Layer describe_layer(const ModelConfig& config, int index, const LayerSplit& split = {});

}  // namespace qft::model
