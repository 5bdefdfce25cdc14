// Constructors for each sub-layer kind. Private to model.
#pragma once

#include "qft/model/sublayer.h"

#include <memory>

namespace qft::model {

std::unique_ptr<const SubLayer> make_attention(const ModelConfig& config, const SubLayerSpec& spec);
std::unique_ptr<const SubLayer> make_delta_net(const ModelConfig& config, const SubLayerSpec& spec);
std::unique_ptr<const SubLayer> make_experts(const ModelConfig& config, const SubLayerSpec& spec);
std::unique_ptr<const SubLayer> make_squared_relu(const ModelConfig& config, const SubLayerSpec& spec);
std::unique_ptr<const SubLayer> make_swiglu(const ModelConfig& config, const SubLayerSpec& spec);

}  // namespace qft::model
