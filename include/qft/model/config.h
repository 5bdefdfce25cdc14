// A model's config.json, reduced to the values that the computation needs. Architectures are rows of a table.
#pragma once

#include "qft/ops/quantized_layout.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace qft::model {

enum class StoredMethod : std::uint8_t {
  bitsandbytes,  ///< nf4, fp4 or int8, as transformers saves them
  fp8,           ///< e4m3 with a scale per tile, row or tensor: transformers' "fp8", compressed-tensors' "float-quantized"
  gptq,          ///< Frantar et al. 2022, in the tensors that AutoGPTQ and GPTQModel write
  awq            ///< Lin et al. 2023, in the tensors of AutoAWQ's "gemm"
};

struct StoredQuantization {
  StoredMethod method = StoredMethod::bitsandbytes;
  ops::Quantization kind = {};   ///< format of the quantised linears; for bitsandbytes, each weight's files give its format
  bool zeros_minus_one = false;  ///< gptq: stored zero points are one too small (format version 1)
  const char* scale = ".weight_scale_inv";  ///< fp8: suffix of the scales' names
};
/// Returns a description for messages: "GPTQ: int4 in groups of 128".
std::string describe(const StoredQuantization& stored);

/// Reads the value of quantization_config in config.json. Throws Error naming `where`, the key and the implemented values.
StoredQuantization read_quantization(const nlohmann::json& object, const std::string& where);

/// Rotary embedding. Scalings follow transformers' modeling_rope_utils.py: _compute_llama3_parameters, _compute_yarn_parameters
/// (Peng et al. 2023), _compute_linear_scaling_rope_parameters, _compute_dynamic_ntk_parameters.
struct RopeConfig {
  double theta = 10000.0;
  double partial = 1.0;  ///< share of a head's columns, counted from the first, that is rotated
  struct Llama3 {
    double factor = 8.0, low_freq_factor = 1.0, high_freq_factor = 4.0;
    std::int64_t original_max_position_embeddings = 8192;
  };
  std::optional<Llama3> llama3;
  struct Yarn {
    double factor = 1.0, beta_fast = 32.0, beta_slow = 1.0;
    std::int64_t original_max_position_embeddings = 0;
    double attention_factor = 1.0;  ///< multiplies cosines and sines
    bool truncate = true;           ///< the interpolated range of dimensions has integer ends
  };
  std::optional<Yarn> yarn;
  double linear = 1.0;  ///< positions are divided by this
  struct Dynamic {
    double factor = 1.0;
    std::int64_t positions = 0;  ///< theta itself applies up to this many tokens: max_position_embeddings in config.json
  };
  std::optional<Dynamic> dynamic;

  /// Returns true if a sequence with `length` tokens has its own frequencies.
  bool scales_for(std::int64_t length) const { return dynamic && length > dynamic->positions; }
};

/// Feed-forward by experts; each token uses a few of them (Shazeer et al. 2017; Mixtral, Qwen's MoE models).
struct ExpertsConfig {
  std::int64_t count = 0;              ///< experts per layer; 0: the model is dense
  std::int64_t per_token = 0;          ///< experts per token
  std::int64_t intermediate_size = 0;  ///< per expert
  std::int64_t shared_size = 0;        ///< size of the shared expert, which every token uses; 0: none
  bool normalise = false;              ///< a token's expert weights add up to 1 (norm_topk_prob)
  bool fused = false;                  ///< files have one tensor for all experts
  double aux_loss_coef = 0.0;          ///< router_aux_loss_coef; 0 unless output_router_logits enables the loss
  std::string block = "mlp";           ///< path of router and experts in a layer
  /// File names of an expert's linears: gate, up, down.
  std::string gate = "gate_proj", up = "up_proj", down = "down_proj";
};

/// The gated delta net (Yang et al. 2024): the mixer of most layers in Qwen3-Next and Qwen3.5.
struct DeltaNetConfig {
  std::int64_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;  ///< key_heads 0: the model has none
  std::int64_t taps = 4;                                                    ///< taps of the short convolution
  bool by_key_head = false;  ///< projections interleave by key head: q, k, v, gate; b, a (Qwen3-Next)

  std::int64_t channels() const { return 2 * key_heads * key_dim + values(); }  ///< channels of the convolution: q, k, v
  std::int64_t values() const { return value_heads * value_dim; }
  /// Columns of all projections: q, k, v, gate, b, a.
  std::int64_t columns() const { return channels() + values() + 2 * value_heads; }
};

/// Scope of the norms on q and k: each head's columns (Qwen3), or all columns of a token together (OLMo 2).
enum class QkNorm : std::uint8_t { none, heads, whole };

/// How norms apply their weights; see ops::NormWeight.
enum class NormKind : std::uint8_t { plain, zero_centred, rounded_last };

/// A dense feed-forward: down(silu(gate(x)) * up(x)), or down(relu(up(x))^2).
enum class FeedForward : std::uint8_t { swiglu, squared_relu };

/// A decoder-only transformer of the Llama family.
struct ModelConfig {
  std::string model_type;    ///< one of architectures(): "qwen2"
  std::string architecture;  ///< transformers' class, e.g. "Qwen2ForCausalLM"
  std::int64_t hidden_size = 0, intermediate_size = 0, num_layers = 0;
  std::int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  std::int64_t vocab_size = 0, max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  double attention_dropout = 0.0;  ///< not implemented: training reports it
  RopeConfig rope;
  bool tie_word_embeddings = false;
  bool qkv_bias = false, o_bias = false, mlp_bias = false;
  QkNorm qk_norm = QkNorm::none;
  bool attention_gate = false;  ///< q_proj also produces a gate per head; its sigmoid multiplies the head's output
  NormKind norms = NormKind::plain;
  bool norm_after = false;  ///< a sub-layer is x + norm(sub(x)) rather than x + sub(norm(x))
  FeedForward feed_forward = FeedForward::swiglu;
  std::vector<std::int64_t> windows;  ///< one per layer, as window() returns them; empty: no layer has a window
  ExpertsConfig experts;
  std::vector<bool> sparse;  ///< for each layer, whether its feed-forward is experts; empty: no layer
  DeltaNetConfig delta_net;
  std::vector<bool> recurrent;         ///< for each layer, whether its mixer is a gated delta net; empty: no layer
  std::string text_prefix = "model.";  ///< prefix of the decoder's tensors in files
  /// Prefix of the decoder's modules in transformers' class; adapters name modules with it.
  std::string module_prefix = "model.";
  /// Prefixes of further tensors that files may hold beside the decoder's. These tensors stay unchanged.
  std::vector<std::string> other_prefixes;
  std::vector<std::int32_t> eos_token_ids;
  std::optional<StoredQuantization> stored;  ///< set if files hold linears quantised
  double initializer_range = 0.02;           ///< deviation of initial weights in transformers
  std::int64_t labels = 0;                   ///< labels of a classifier (architectures); 0: not a classifier
  std::string problem_type;                  ///< of a classifier, if config.json names it
  std::string raw;                           ///< config.json as read, for export
  bool rewritten = false;                    ///< `raw` was corrected to match the weights and differs from the file
  std::int64_t scaled_from = 0;              ///< first_positions() of the model that scaled_to() extended; 0: not scaled
  std::vector<std::string> notes;            ///< remarks on the file for the user; load() logs them as warnings

  std::int64_t q_size() const { return num_heads * head_dim; }
  std::int64_t kv_size() const { return num_kv_heads * head_dim; }
  /// Columns of the fused projection; q's columns include its gates.
  std::int64_t qkv_size() const { return (attention_gate ? 2 : 1) * q_size() + 2 * kv_size(); }
  std::int64_t rotary_dim() const { return static_cast<std::int64_t>(rope.partial * static_cast<double>(head_dim)); }

  /// Returns how many tokens a token sees in a layer's attention, itself included; 0: all before it.
  std::int64_t window(int layer) const { return windows.empty() ? 0 : windows.at(static_cast<std::size_t>(layer)); }

  bool is_sparse(int layer) const { return !sparse.empty() && sparse.at(static_cast<std::size_t>(layer)); }

  bool is_recurrent(int layer) const { return !recurrent.empty() && recurrent.at(static_cast<std::size_t>(layer)); }
  /// Returns true if this file tensor is not part of the decoder and stays unchanged.
  bool is_other(std::string_view tensor) const;

  /// Returns the inverse frequencies [rotary_dim / 2] for a sequence with `length` tokens, scaling applied (in fp32 arithmetic
  /// where transformers uses fp32). They depend on `length` only if rope.scales_for(length).
  std::vector<double> inverse_frequencies(std::int64_t length = 0) const;

  /// Parses a config.json text. Throws Error, naming `where` and the key, for a missing or invalid value, and for a model_type,
  /// activation, rope scaling or attention kind that is not implemented.
  static ModelConfig parse(const std::string& text, const std::string& where);
  /// Returns the config for texts with up to `tokens` tokens by scaling rope's frequencies ("linear", "yarn", "llama3",
  /// "dynamic") like LLaMA-Factory's configure_rope: the factor is tokens over first_positions(), rounded up. `raw` becomes the
  /// text of its config.json.
  ModelConfig scaled_to(std::int64_t tokens, const std::string& rope_type) const;
  /// Returns how many positions the model was trained for before any rope scaling.
  std::int64_t first_positions() const;
  /// Reads DIR/config.json, and eos_token_id from DIR/generation_config.json if that exists. If config.json ties the head but the
  /// weights have a head too, compares head and embeddings; a head that differs is untied.
  static ModelConfig load(const std::filesystem::path& dir);
};

/// Returns the `model_type` of each implemented architecture, as in config.json.
std::vector<std::string_view> architectures();

/// Returns the Python module with transformers' classes of this architecture: "transformers.models.qwen3.modeling_qwen3". Throws
/// Error for a model_type that is not implemented.
std::string modeling_module(const std::string& model_type);

}  // namespace qft::model
