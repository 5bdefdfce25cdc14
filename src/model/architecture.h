// Properties of an architecture that config.json omits, as a table row. Private to model.
#pragma once

#include "qft/model/config.h"

#include <cstdint>
#include <string>

namespace qft::model {

/// Whether linears have a bias: the value of `key` in config.json, or `fallback` if the key is absent; without a key always
/// `fallback`.
struct Bias {
  const char* key = nullptr;
  bool fallback = false;
};

/// Layers that may have a sliding window. `by_layer`: use_sliding_window, max_window_layers and layer_types decide; `if_enabled`:
/// all if use_sliding_window is true; `if_sized`: all if sliding_window is a number; `all`: all, even if config.json omits it.
enum class Windows : std::uint8_t { none, by_layer, if_enabled, if_sized, all };

/// Expert layers of an architecture. `mixtral`: in every layer, with its own names; `qwen`: in the layers that config.json names;
/// `qwen_shared`: likewise, beside a shared expert.
enum class Experts : std::uint8_t { none, mixtral, qwen, qwen_shared };

/// Hybrids of gated attention and gated delta nets. `by_key_head`: as in DeltaNetConfig.
enum class Hybrid : std::uint8_t { none, by_key_head, separate };

/// One row per architecture.
struct Architecture {
  const char* model_type;
  const char* hf_class;
  Bias qkv = {}, o = {}, mlp = {};
  QkNorm qk_norm = QkNorm::none;
  std::int64_t default_head_dim = 0;  ///< 0: hidden_size / num_attention_heads
  double default_eps = 1e-6;          ///< rms_norm_eps
  double default_theta = 10000.0;     ///< rope_theta
  Windows windows = Windows::none;
  Experts experts = Experts::none;
  Hybrid hybrid = Hybrid::none;
  NormKind norms = NormKind::plain;
  bool norm_after = false;
  FeedForward feed_forward = FeedForward::swiglu;
  const char* package = nullptr;  ///< transformers' package with the class; null: the one named like model_type
};

/// Returns the row for this model_type. Throws Error naming `where` and all implemented types.
const Architecture& architecture_of(const std::string& model_type, const std::string& where);

}  // namespace qft::model
