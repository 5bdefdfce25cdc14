#include "qft/model/config.h"

#include "qft/core/error.h"
#include "qft/core/hub.h"
#include "qft/core/json.h"
#include "qft/core/log.h"
#include "qft/core/member.h"
#include "qft/io/file.h"
#include "qft/io/model_files.h"
#include "qft/model/classifier.h"
#include "qft/model/spec.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "architecture.h"
#include "config_reader.h"
#include "file_traits.h"
#include "rope_config.h"
#include <nlohmann/json.hpp>

namespace qft::model {
namespace {

using nlohmann::json;
using Reader = ConfigReader;
constexpr std::uint64_t kMaxConfigBytes = 16 << 20;
constexpr std::int64_t kMaxVocabulary = 1 << 24;
constexpr std::int64_t kMaxLayers = 4096;
constexpr std::int64_t kMaxTaps = 8;      ///< of the short convolution (ops/short_convolution.h)
constexpr std::int64_t kUnusedWidth = 1;  ///< width of a dense feed-forward that no layer uses

constexpr double kHybridRotatedShare = 0.25;  ///< share of a hybrid's head columns that is rotated if config.json omits it
constexpr std::int64_t kAttentionInterval = 4;
/// transformers' defaults if config.json omits sliding_window (null means none) or max_window_layers.
constexpr std::int64_t kDefaultWindow = 4096, kDefaultFullLayers = 28;

/// Returns ModelConfig::windows.
std::vector<std::int64_t> read_windows(const Reader& config, const Architecture& arch, std::int64_t layers) {
  const bool always = arch.windows == Windows::all || arch.windows == Windows::if_sized;
  const bool wanted = always ? arch.windows == Windows::all || config.find("sliding_window") != nullptr
                             : config.boolean("use_sliding_window", false);
  require(!wanted || arch.windows != Windows::none,
          "{}: use_sliding_window is true, but {} has no sliding window: set it to false", config.where(), arch.model_type);
  const std::int64_t window = wanted && !config.is_null("sliding_window") ? config.positive("sliding_window", kDefaultWindow) : 0;
  if (arch.hybrid != Hybrid::none) return {};
  const std::int64_t full =
      arch.windows == Windows::by_layer ? std::min(layers, config.integer("max_window_layers", kDefaultFullLayers)) : 0;
  std::vector<std::int64_t> windows(static_cast<std::size_t>(layers), window);
  std::fill_n(windows.begin(), full, 0);
  const json* types = config.find("layer_types");
  if (types == nullptr) return windows;
  require(types->is_array(), "{}: layer_types is {}, expected a list of {} kinds of attention", config.where(), types->dump(),
          layers);
  require(std::ssize(*types) == layers, "{}: layer_types has {} entries, but num_hidden_layers is {}", config.where(),
          types->size(), layers);
  const std::string no_window = arch.windows == Windows::none ? fmt::format("{} has no sliding window", arch.model_type)
                                : wanted                      ? "sliding_window is null"
                                                              : "use_sliding_window is not true";
  for (std::size_t i = 0; i < windows.size(); ++i) {
    const bool sliding = (*types)[i] == "sliding_attention";
    require(sliding || (*types)[i] == "full_attention",
            "{}: layer_types[{}] is {}, which is not implemented (implemented: full_attention, sliding_attention)",
            config.where(), i, (*types)[i].dump());
    require(!sliding || window > 0, "{}: layer_types[{}] is \"sliding_attention\", but {}", config.where(), i, no_window);
    require(
        sliding || window == 0 || arch.windows == Windows::by_layer,
        "{}: layer_types[{}] is \"full_attention\", but every layer of {} has the sliding_window of {}: remove layer_types or "
        "set sliding_window to null",
        config.where(), i, arch.model_type, window);
    windows[i] = sliding ? window : 0;
  }
  return windows;
}

/// Reads the sizes of gated delta nets, and the layers that have them.
void read_delta_net(const Reader& config, const Architecture& arch, ModelConfig& c) {
  if (arch.hybrid == Hybrid::none) return;
  c.attention_gate = true;
  c.delta_net = {.key_heads = config.size("linear_num_key_heads", 16),
                 .value_heads = config.size("linear_num_value_heads", 32),
                 .key_dim = config.size("linear_key_head_dim", 128),
                 .value_dim = config.size("linear_value_head_dim", 128),
                 .taps = config.size("linear_conv_kernel_dim", 4),
                 .by_key_head = arch.hybrid == Hybrid::by_key_head};
  const DeltaNetConfig& d = c.delta_net;
  require(d.value_heads % d.key_heads == 0, "{}: linear_num_value_heads {} is not a multiple of linear_num_key_heads {}",
          config.where(), d.value_heads, d.key_heads);
  require(d.taps >= 2 && d.taps <= kMaxTaps, "{}: linear_conv_kernel_dim {} is not implemented (implemented: 2 to {})",
          config.where(), d.taps, kMaxTaps);
  require(d.columns() <= kMaxSize, "{}: projections have {} columns, more than {}: is the file damaged?", config.where(),
          d.columns(), kMaxSize);
  const auto layers = static_cast<std::size_t>(c.num_layers);
  const json* types = config.find("layer_types");
  if (types == nullptr) {
    const std::int64_t interval = config.positive("full_attention_interval", kAttentionInterval);
    for (std::size_t i = 0; i < layers; ++i) c.recurrent.push_back((static_cast<std::int64_t>(i) + 1) % interval != 0);
    return;
  }
  require(types->is_array() && types->size() == layers, "{}: layer_types is not a list of {} layers (num_hidden_layers)",
          config.where(), layers);
  for (std::size_t i = 0; i < layers; ++i) {
    const json& type = (*types)[i];
    require(type == "linear_attention" || type == "full_attention",
            "{}: layer_types[{}] is {}, which is not implemented (implemented: full_attention, linear_attention)", config.where(),
            i, type.dump());
    c.recurrent.push_back(type == "linear_attention");
  }
}

/// Reads the sizes of experts, and the layers that have them.
void read_experts(const Reader& config, const Architecture& arch, ModelConfig& c) {
  if (arch.experts == Experts::none) return;
  ExpertsConfig& e = c.experts;
  const bool mixtral = arch.experts == Experts::mixtral;
  // Newer files of Qwen's models use Mixtral's key.
  e.count = config.size(config.find("num_experts") != nullptr ? "num_experts" : "num_local_experts");
  e.per_token = config.size("num_experts_per_tok");
  require(e.per_token <= e.count, "{}: num_experts_per_tok is {}, more than the {} experts", config.where(), e.per_token,
          e.count);
  e.intermediate_size = mixtral ? c.intermediate_size : config.size("moe_intermediate_size");
  if (arch.experts == Experts::qwen_shared) e.shared_size = config.size("shared_expert_intermediate_size");
  e.normalise = mixtral || config.boolean("norm_topk_prob", arch.hybrid != Hybrid::none) || arch.hybrid == Hybrid::separate;
  if (config.boolean("output_router_logits", false)) e.aux_loss_coef = config.number("router_aux_loss_coef", 0.001);
  const double jitter = config.number("router_jitter_noise", 0.0);
  require(jitter == 0.0, "{}: router_jitter_noise {} is not implemented: set it to 0", config.where(), jitter);
  c.sparse.assign(static_cast<std::size_t>(c.num_layers), true);
  if (mixtral) {
    e.block = "block_sparse_moe";
    std::tie(e.gate, e.up, e.down) = std::make_tuple("w1", "w3", "w2");
    return;
  }
  const std::int64_t step = config.positive("decoder_sparse_step", 1);
  for (std::size_t i = 0; i < c.sparse.size(); ++i) c.sparse[i] = (static_cast<std::int64_t>(i) + 1) % step == 0;
  const json* dense = config.find("mlp_only_layers");
  if (dense == nullptr) return;
  require(dense->is_array(), "{}: mlp_only_layers is {}, expected a list of layers", config.where(), dense->dump());
  for (const json& layer : *dense) {
    require(layer.is_number_integer() && layer >= 0, "{}: mlp_only_layers holds {}, expected layer numbers", config.where(),
            layer.dump());
    if (layer.get<std::int64_t>() < c.num_layers) c.sparse[layer.get<std::size_t>()] = false;
  }
}

std::vector<std::int32_t> read_token_ids(const json* value, const std::string& where) {
  std::vector<std::int32_t> ids;
  if (value == nullptr) return ids;
  const json list = value->is_array() ? *value : json::array({*value});
  for (const json& id : list) {
    require(id.is_number_integer() && id >= 0 && id <= std::numeric_limits<std::int32_t>::max(),
            "{}: eos_token_id holds {}, expected token ids", where, id.dump());
    ids.push_back(id.get<std::int32_t>());
  }
  return ids;
}

void reject_unimplemented(const Reader& reader, const Architecture& arch) {
  const std::string_view known = arch.feed_forward == FeedForward::swiglu ? "silu" : "relu2";
  const std::string act = reader.text("hidden_act", std::string(known));
  require(act == known, "{}: hidden_act '{}' of {} is not implemented (implemented: {})", reader.where(), act, arch.model_type,
          known);
}

std::string read_text(const std::filesystem::path& dir, const char* name) {
  const auto path = member_of(dir, name);
  if (is_hub_name(dir.string())) fail_config("folder '{}' does not exist. {}", dir.string(), fetch_hint("model", dir.string()));
  if (!std::filesystem::exists(dir)) fail_config("model folder '{}' does not exist", dir.string());
  if (!std::filesystem::exists(path))
    fail_config("cannot read '{}': is '{}' a model directory in Hugging Face layout?", path.string(), dir.string());
  return io::read_text_file(path, kMaxConfigBytes);
}

json parse_object(const std::string& text, const std::string& where) {
  json object = parse_json(text, where);
  require(object.is_object(), "{}: expected a JSON object", where);
  return object;
}

/// Recognises transformers' classifiers by the end of their class name. They have two labels if id2label is missing.
void read_classifier(const Reader& whole, ModelConfig& c) {
  const json* classes = whole.find("architectures");
  if (classes == nullptr || !classes->is_array() || classes->empty() || !classes->front().is_string() ||
      !classes->front().get<std::string>().ends_with(kClassifierClass))
    return;
  const json* names = whole.find("id2label");
  const bool named = names != nullptr && names->is_object() && !names->empty();
  c.labels = named ? static_cast<std::int64_t>(names->size()) : whole.size("num_labels", 2);
  c.problem_type = whole.text("problem_type", "");
}

}  // namespace

bool ModelConfig::is_other(std::string_view tensor) const {
  return std::ranges::any_of(other_prefixes, [&](const std::string& prefix) { return tensor.starts_with(prefix); });
}

ModelConfig ModelConfig::parse(const std::string& text, const std::string& where) {
  const json object = parse_object(text, where);
  const Reader whole(object, where);
  ModelConfig c;
  c.model_type = whole.text("model_type", "");
  const Architecture& arch = architecture_of(c.model_type, where);
  // Vision-language models nest the decoder's configuration under text_config.
  const json* nested = whole.find("text_config");
  require(nested == nullptr || nested->is_object(), "{}: text_config is not an object", where);
  const Reader inner(nested == nullptr ? object : *nested, where + ": text_config");
  const Reader& reader = nested == nullptr ? whole : inner;
  check_config_keys(whole, reader, arch, c.notes);
  reject_unimplemented(whole, arch);
  reject_unimplemented(reader, arch);
  const json* stored = whole.find("quantization_config");
  if (stored == nullptr) stored = reader.find("quantization_config");
  if (stored != nullptr) c.stored = read_quantization(*stored, where);
  c.architecture = arch.hf_class;
  c.hidden_size = reader.size("hidden_size");
  c.intermediate_size =
      reader.size("intermediate_size",
                  arch.hybrid != Hybrid::none && arch.experts != Experts::none ? std::optional(kUnusedWidth) : std::nullopt);
  c.num_layers = reader.positive("num_hidden_layers");
  c.num_heads = reader.size("num_attention_heads");
  c.num_kv_heads = reader.size("num_key_value_heads", c.num_heads);
  c.head_dim = reader.size("head_dim", arch.default_head_dim ? arch.default_head_dim : c.hidden_size / c.num_heads);
  c.vocab_size = reader.positive("vocab_size");
  c.max_position_embeddings = reader.positive("max_position_embeddings", 2048);
  c.rms_norm_eps = reader.number("rms_norm_eps", arch.default_eps);
  c.attention_dropout = reader.number("attention_dropout", 0.0);
  c.tie_word_embeddings = whole.boolean("tie_word_embeddings", reader.boolean("tie_word_embeddings", false));
  const auto has_bias = [&](Bias bias) { return bias.key ? reader.boolean(bias.key, bias.fallback) : bias.fallback; };
  c.qkv_bias = has_bias(arch.qkv);
  c.o_bias = has_bias(arch.o);
  c.mlp_bias = has_bias(arch.mlp);
  c.qk_norm = arch.qk_norm;
  c.norms = arch.norms;
  c.norm_after = arch.norm_after;
  c.feed_forward = arch.feed_forward;
  const auto partial = arch.hybrid == Hybrid::none ? std::nullopt : std::optional(kHybridRotatedShare);
  c.rope = read_rope(reader, c.max_position_embeddings, {arch.default_theta, partial}, c.notes);
  c.eos_token_ids = read_token_ids(whole.find("eos_token_id") ? whole.find("eos_token_id") : reader.find("eos_token_id"), where);
  if (nested != nullptr) c.text_prefix = c.module_prefix = kTextPrefixes[0];
  if (nested != nullptr || arch.hybrid == Hybrid::separate) c.other_prefixes.emplace_back("model.visual.");
  if (arch.hybrid != Hybrid::none) c.other_prefixes.emplace_back("mtp.");
  c.initializer_range = reader.number("initializer_range", c.initializer_range);
  read_classifier(whole, c);
  c.raw = text;
  require(c.num_layers <= kMaxLayers, "{}: 'num_hidden_layers' is {}, more than {}: is the file damaged?", where, c.num_layers,
          kMaxLayers);
  c.windows = read_windows(reader, arch, c.num_layers);
  read_experts(reader, arch, c);
  read_delta_net(reader, arch, c);
  require(c.vocab_size <= kMaxVocabulary, "{}: 'vocab_size' is {}, more than {}: is the file damaged?", where, c.vocab_size,
          kMaxVocabulary);
  require(c.num_heads * c.head_dim <= kMaxSize, "{}: {} heads of size {} exceed {} columns: is the file damaged?", where,
          c.num_heads, c.head_dim, kMaxSize);
  require(c.num_heads % c.num_kv_heads == 0, "{}: num_attention_heads {} is not a multiple of num_key_value_heads {}", where,
          c.num_heads, c.num_kv_heads);
  require(c.rotary_dim() % 2 == 0 && c.rotary_dim() > 0,
          "{}: {} of the {} columns of a head are rotated: rotary embeddings need an even number", where, c.rotary_dim(),
          c.head_dim);
  require(!c.rope.dynamic || c.rotary_dim() > 2, "{}: rope scaling 'dynamic' is undefined for heads with 2 rotated columns",
          where);
  return c;
}

ModelConfig ModelConfig::load(const std::filesystem::path& dir) {
  const auto path = dir / io::kModelConfigFile;
  ModelConfig config = parse(read_text(dir, io::kModelConfigFile), path.string());
  const auto generation = dir / "generation_config.json";
  if (std::filesystem::exists(generation)) {
    const json object = parse_object(read_text(dir, "generation_config.json"), generation.string());
    const auto it = object.find("eos_token_id");
    if (it != object.end() && !it->is_null()) config.eos_token_ids = read_token_ids(&*it, generation.string());
  }
  detect_text_prefix(config, dir);
  detect_tied_head(config, dir);
  for (const std::string& note : config.notes) log::warn_once(note);
  return config;
}

}  // namespace qft::model
