// What a config.json says about a model, reduced to what the computation needs. Architectures are rows of a table.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace qft::model {

/// Rotary embedding. `llama3` scaling: transformers' modeling_rope_utils.py, _compute_llama3_parameters.
struct RopeConfig {
  double theta = 10000.0;
  struct Llama3 {
    double factor = 8.0, low_freq_factor = 1.0, high_freq_factor = 4.0;
    std::int64_t original_max_position_embeddings = 8192;
  };
  std::optional<Llama3> llama3;
};

/// Feed-forward by experts of which each token takes a few (Shazeer et al. 2017; Mixtral, Qwen's MoE models).
struct ExpertsConfig {
  std::int64_t count = 0;              ///< experts of a layer; 0: the model is dense
  std::int64_t per_token = 0;          ///< that a token goes to
  std::int64_t intermediate_size = 0;  ///< of an expert
  std::int64_t shared_size = 0;        ///< of the expert that every token goes to; 0: none
  bool normalise = false;              ///< weights of a token's experts add up to 1 (norm_topk_prob)
  bool fused = false;                  ///< models' files have one tensor for all experts
  double aux_loss_coef = 0.0;          ///< router_aux_loss_coef, where output_router_logits asks for the loss
  std::string block = "mlp";           ///< path of router and experts in a layer
  /// Names of an expert's linears in files: gate, up, down.
  std::string gate = "gate_proj", up = "up_proj", down = "down_proj";
};

/// One decoder-only transformer of the Llama family.
struct ModelConfig {
  std::string model_type;    ///< one of architectures(): "qwen2"
  std::string architecture;  ///< transformers' class, e.g. "Qwen2ForCausalLM"
  std::int64_t hidden_size = 0, intermediate_size = 0, num_layers = 0;
  std::int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  std::int64_t vocab_size = 0, max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  double attention_dropout = 0.0;  ///< not implemented: training says so
  RopeConfig rope;
  bool tie_word_embeddings = false;
  bool qkv_bias = false, o_bias = false, mlp_bias = false;
  bool qk_norm = false;               ///< per-head RMSNorm of q and k (Qwen3)
  std::vector<std::int64_t> windows;  ///< of each layer, as window() returns them; empty: no layer has one
  ExpertsConfig experts;
  std::vector<bool> sparse;  ///< of each layer: whether its feed-forward is experts; empty: of none
  std::vector<std::int32_t> eos_token_ids;
  std::string raw;  ///< config.json as read, for export

  std::int64_t q_size() const { return num_heads * head_dim; }
  std::int64_t kv_size() const { return num_kv_heads * head_dim; }
  std::int64_t qkv_size() const { return q_size() + 2 * kv_size(); }

  /// How many tokens a token sees in the attention of a layer, itself included; 0: all before it.
  std::int64_t window(int layer) const { return windows.empty() ? 0 : windows.at(static_cast<std::size_t>(layer)); }

  bool is_sparse(int layer) const { return !sparse.empty() && sparse.at(static_cast<std::size_t>(layer)); }

  /// Inverse frequencies [head_dim / 2], scaling applied (fp32 arithmetic where transformers uses it).
  std::vector<double> inverse_frequencies() const;

  /// Parses a config.json text. Throws Error naming `where` and the key for a missing or odd value, and for a
  /// model_type, activation, rope scaling or kind of attention that is not implemented.
  static ModelConfig parse(const std::string& text, const std::string& where);
  /// Reads DIR/config.json (and DIR/generation_config.json for eos_token_id, if there).
  static ModelConfig load(const std::filesystem::path& dir);
};

}  // namespace qft::model
