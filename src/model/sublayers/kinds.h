// The kinds of sub-layers, and which a layer of a model is made of. Private to model.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "qft/model/config.h"
#include "qft/model/sublayer.h"

namespace qft::model {

/// softmax(q k^T) v over each sequence, causal, with grouped query heads, rotary embedding, and norms of q and k where the
/// configuration has them.
std::shared_ptr<const SubLayer> make_attention(const ModelConfig& config);
/// down(silu(gate(x)) * up(x)).
std::shared_ptr<const SubLayer> make_swiglu(const ModelConfig& config);

/// The sub-layers of layer `index`, in order.
std::vector<std::shared_ptr<const SubLayer>> sublayers_of(const ModelConfig& config, int index);

}  // namespace qft::model
