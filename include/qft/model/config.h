// What a config.json says about a model, reduced to what the computation needs. Architectures are rows of a table.
#pragma once

#include "qft/model/stored_quantization.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace qft::model {

/// Rotary embedding. Scalings: transformers' modeling_rope_utils.py, _compute_llama3_parameters, _compute_yarn_parameters (Peng
/// et al. 2023), _compute_linear_scaling_rope_parameters, _compute_dynamic_ntk_parameters.
struct RopeConfig {
  double theta = 10000.0;
  double partial = 1.0;  ///< share of a head's columns, from the first on, that is rotated
  struct Llama3 {
    double factor = 8.0, low_freq_factor = 1.0, high_freq_factor = 4.0;
    std::int64_t original_max_position_embeddings = 8192;
  };
  std::optional<Llama3> llama3;
  struct Yarn {
    double factor = 1.0, beta_fast = 32.0, beta_slow = 1.0;
    std::int64_t original_max_position_embeddings = 0;
    double attention_factor = 1.0;  ///< of cosines and sines
    bool truncate = true;           ///< the range of dimensions that change has whole numbers as ends
  };
  std::optional<Yarn> yarn;
  double linear = 1.0;  ///< positions are divided by it
  struct Dynamic {
    double factor = 1.0;
    std::int64_t positions = 0;  ///< up to so many tokens a sequence has theta itself: max_position_embeddings of config.json
  };
  std::optional<Dynamic> dynamic;

  /// Whether a sequence of so many tokens has frequencies of its own.
  bool follows(std::int64_t length) const { return dynamic && length > dynamic->positions; }
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

/// The gated delta net (Yang et al. 2024), the mixer of most layers of Qwen3-Next and Qwen3.5.
struct DeltaNetConfig {
  std::int64_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;  ///< key_heads 0: the model has none
  std::int64_t taps = 4;                                                    ///< of the short convolution
  bool by_key_head = false;  ///< projections hold what belongs to a key head together: q, k, v, gate; b, a (Qwen3-Next)

  std::int64_t channels() const { return 2 * key_heads * key_dim + values(); }  ///< of the convolution: q, k, v
  std::int64_t values() const { return value_heads * value_dim; }
  std::int64_t columns() const { return channels() + values() + 2 * value_heads; }  ///< of all projections: q, k, v, gate, b, a
};

/// What norms of q and k are taken over: each head's columns (Qwen3), or all columns of a token together (OLMo 2).
enum class QkNorm : std::uint8_t { none, heads, whole };

/// How norms multiply with their weights, as ops::NormWeight says.
enum class NormKind : std::uint8_t { plain, zero_centred, rounded_last };

/// A dense feed-forward: down(silu(gate(x)) * up(x)), or down(relu(up(x))^2).
enum class FeedForward : std::uint8_t { swiglu, squared_relu };

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
  QkNorm qk_norm = QkNorm::none;
  bool attention_gate = false;  ///< q_proj gives each head's gate too, whose sigmoid multiplies what it attends to
  NormKind norms = NormKind::plain;
  bool norm_after = false;  ///< a sub-layer is x + norm(sub(x)) rather than x + sub(norm(x))
  FeedForward feed_forward = FeedForward::swiglu;
  std::vector<std::int64_t> windows;  ///< of each layer, as window() returns them; empty: no layer has one
  ExpertsConfig experts;
  std::vector<bool> sparse;  ///< of each layer: whether its feed-forward is experts; empty: of none
  DeltaNetConfig delta_net;
  std::vector<bool> recurrent;           ///< of each layer: whether its mixer is a gated delta net; empty: of none
  std::string text_prefix = "model.";    ///< of the decoder's tensors in files
  std::string module_prefix = "model.";  ///< of its modules in transformers' class, after which adapters are named
  /// Prefixes of tensors that files may have beside the decoder's: they stay as they are.
  std::vector<std::string> other_prefixes;
  std::vector<std::int32_t> eos_token_ids;
  std::optional<StoredQuantization> stored;  ///< of linears that files hold quantised
  double initializer_range = 0.02;           ///< the deviation of weights at first, in transformers
  std::int64_t labels = 0;                   ///< of a classifier (architectures); 0: it is none
  std::string problem_type;                  ///< a classifier's, if config.json names it
  std::string raw;                           ///< config.json as read, for export
  bool rewritten = false;                    ///< `raw` is not the file's: it says what the weights beside it show
  std::vector<std::string> notes;            ///< what a user should know of the file: load() warns of them

  std::int64_t q_size() const { return num_heads * head_dim; }
  std::int64_t kv_size() const { return num_kv_heads * head_dim; }
  /// Columns of the fused projection; gates are among those of q.
  std::int64_t qkv_size() const { return (attention_gate ? 2 : 1) * q_size() + 2 * kv_size(); }
  std::int64_t rotary_dim() const { return static_cast<std::int64_t>(rope.partial * static_cast<double>(head_dim)); }

  /// How many tokens a token sees in the attention of a layer, itself included; 0: all before it.
  std::int64_t window(int layer) const { return windows.empty() ? 0 : windows.at(static_cast<std::size_t>(layer)); }

  bool is_sparse(int layer) const { return !sparse.empty() && sparse.at(static_cast<std::size_t>(layer)); }

  bool is_recurrent(int layer) const { return !recurrent.empty() && recurrent.at(static_cast<std::size_t>(layer)); }
  /// Whether this tensor of the files is none of the decoder's, but one that stays as it is.
  bool is_other(std::string_view tensor) const;

  /// Inverse frequencies [rotary_dim / 2], scaling applied (fp32 arithmetic where transformers uses it), of a sequence of
  /// `length` tokens: they differ where rope.follows(length).
  std::vector<double> inverse_frequencies(std::int64_t length = 0) const;

  /// Parses a config.json text. Throws Error naming `where` and the key for a missing or odd value, and for a
  /// model_type, activation, rope scaling or kind of attention that is not implemented.
  static ModelConfig parse(const std::string& text, const std::string& where);
  /// For texts of up to `tokens` tokens by a scaling of rope's frequencies ("linear", "yarn", "llama3", "dynamic") as
  /// LLaMA-Factory's configure_rope sets it: its factor is tokens over first_positions(), rounded up. `raw` is the text of its
  /// config.json.
  ModelConfig scaled_to(std::int64_t tokens, const std::string& rope_type) const;
  /// Positions that the model was trained for before any scaling of them.
  std::int64_t first_positions() const;
  /// Reads DIR/config.json (and DIR/generation_config.json for eos_token_id, if there). Where it ties a head that the weights
  /// beside it have as well, the two are compared: a head that differs is one of its own.
  static ModelConfig load(const std::filesystem::path& dir);
};

}  // namespace qft::model
