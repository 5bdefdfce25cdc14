// The descriptions of all kinds of sub-layers (without their norms), and which a layer of a model is made of. Needs no LibTorch.
// Private to model.
#pragma once

#include "qft/model/config.h"
#include "qft/model/spec.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qft::model {

/// softmax(q k^T) v over each sequence, causal and within the window (0: none), with grouped query heads, rotary embedding, and
/// norms of q and k and gates of its heads where the configuration has them.
SubLayerSpec describe_attention(const ModelConfig& config, std::int64_t window);
/// The gated delta rule over each sequence, after a short convolution of q, k and v, and before a gated norm.
SubLayerSpec describe_delta_net(const ModelConfig& config);
/// down(silu(gate(x)) * up(x)).
SubLayerSpec describe_swiglu(const ModelConfig& config);
/// down(relu(up(x))^2).
SubLayerSpec describe_squared_relu(const ModelConfig& config);
/// Sum over a token's experts of weight * down(silu(gate(x)) * up(x)), with the weights of a router; and a shared expert, where
/// the configuration has one.
SubLayerSpec describe_experts(const ModelConfig& config);
/// Whether a linear of this name chooses experts, rather than computes: `all` linears are without it.
bool is_router(std::string_view name);

/// What the names of a layer's tensors and modules begin with: "model.layers.3.".
std::string layer_prefix(const ModelConfig& config, int index);
/// The names of a linear of a group: of a stack those of all experts.
std::vector<std::string> module_names(const std::string& prefix, const ParamGroup& group, std::size_t linear);
/// The tensors of each expert and of these linears of a stack, `rows` (0: as many as the linear has) x columns, named with
/// `suffix`.
std::vector<FileTensor> expert_tensors(const std::string& prefix, const ParamGroup& group,
                                       const std::vector<std::size_t>& linears, const std::string& suffix, std::int64_t rows,
                                       std::int64_t columns);
/// The sub-layers of layer `index`, in order, each with its norm.
Layer describe_layer(const ModelConfig& config, int index);

}  // namespace qft::model
