// The parameters of each sub-layer kind, and which of their dimensions tensor ranks cut. Private to model.
#pragma once

#include "qft/model/config.h"
#include "qft/model/sublayer_spec.h"

#include <vector>

namespace qft::model {

std::vector<ParamGroup> attention_params(const ModelConfig& config, const Heads& heads, Share share);
std::vector<ParamGroup> delta_net_params(const ModelConfig& config, const Heads& heads, Share share);
/// `inner`: the columns between a feed-forward's linears.
std::vector<ParamGroup> swiglu_params(const ModelConfig& config, const Cut& inner);
std::vector<ParamGroup> squared_relu_params(const ModelConfig& config, const Cut& inner);
std::vector<ParamGroup> experts_params(const ModelConfig& config);

}  // namespace qft::model
