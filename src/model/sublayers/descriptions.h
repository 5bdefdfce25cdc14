// The descriptions of all kinds of sub-layers, and which a layer of a model is made of. Needs no LibTorch. Private to model.
#pragma once

#include "qft/model/config.h"
#include "qft/model/spec.h"

namespace qft::model {

/// softmax(q k^T) v over each sequence, causal and within the window (0: none), with grouped query heads, rotary embedding, and
/// norms of q and k where the configuration has them.
SubLayerSpec describe_attention(const ModelConfig& config, std::int64_t window);
/// down(silu(gate(x)) * up(x)).
SubLayerSpec describe_swiglu(const ModelConfig& config);

/// The sub-layers of layer `index`, in order.
Layer describe_layer(const ModelConfig& config, int index);

}  // namespace qft::model
