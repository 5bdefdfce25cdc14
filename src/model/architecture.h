// What an architecture's config.json leaves unsaid, as a row of a table. Private to model.
#pragma once

#include "qft/model/config.h"

#include <cstdint>
#include <string>

namespace qft::model {

/// Whether linears carry a bias: what `key` of config.json says, `fallback` where it lacks that; without a key always `fallback`.
struct Bias {
  const char* key = nullptr;
  bool fallback = false;
};

/// Which layers may have a sliding window: `some`: use_sliding_window, max_window_layers and layer_types say it; `asked`: all
/// where use_sliding_window is true; `given`: all where sliding_window is a number; `all`: these where config.json lacks it too.
enum class Windows : std::uint8_t { none, some, asked, given, all };

/// How an architecture has experts: `mixtral` in every layer, by names of its own; `qwen` in those that config.json says, perhaps
/// beside a shared one.
enum class Experts : std::uint8_t { none, mixtral, qwen, qwen_shared };

/// Hybrids of attention, with gates, and of gated delta nets. `by_key_head`: as DeltaNetConfig says.
enum class Hybrid : std::uint8_t { none, by_key_head, apart };

/// One row an architecture: what config.json leaves unsaid.
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
};

/// The row of this model_type. Throws Error naming `where` and all there are.
const Architecture& architecture_of(const std::string& model_type, const std::string& where);

}  // namespace qft::model
