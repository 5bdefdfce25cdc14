// A tiny model of each architecture.
#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

namespace qft::model {

/// Returns a config.json with the keys that this model_type requires.
inline nlohmann::json base(std::string_view type) {
  nlohmann::json config = {{"model_type", type},     {"hidden_size", 24},        {"intermediate_size", 40},
                           {"num_hidden_layers", 2}, {"num_attention_heads", 3}, {"num_key_value_heads", 1},
                           {"vocab_size", 101},      {"rms_norm_eps", 1e-5},     {"tie_word_embeddings", true}};
  if (type == "mixtral" || type.find("_moe") != type.npos || type == "qwen3_next")
    config.update({{"num_local_experts", 4},
                   {"num_experts_per_tok", 2},
                   {"moe_intermediate_size", 16},
                   {"shared_expert_intermediate_size", 32}});
  return config;
}

}  // namespace qft::model
