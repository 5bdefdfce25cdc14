#include <algorithm>
#include <string_view>

#include "config_reader.h"
#include <fmt/ranges.h>

namespace qft::model {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxNamedKeys = 8;

/// Keys of the decoder, for every architecture.
constexpr std::string_view kDecoderKeys =
    "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim hidden_act "
    "max_position_embeddings rms_norm_eps rope_theta rope_scaling rope_parameters original_max_position_embeddings "
    "partial_rotary_factor layer_types attention_dropout initializer_range";
constexpr std::string_view kWindowKeys = "sliding_window use_sliding_window max_window_layers";
constexpr std::string_view kExpertKeys =
    "num_experts num_local_experts num_experts_per_tok moe_intermediate_size shared_expert_intermediate_size norm_topk_prob "
    "output_router_logits router_aux_loss_coef router_jitter_noise decoder_sparse_step mlp_only_layers";
constexpr std::string_view kHybridKeys =
    "full_attention_interval linear_num_key_heads linear_num_value_heads linear_key_head_dim linear_value_head_dim "
    "linear_conv_kernel_dim attn_output_gate mamba_ssm_dtype mtp_num_hidden_layers mtp_use_dedicated_embeddings";
constexpr std::string_view kVisionKeys = "text_config vision_config language_model_only";

/// Keys of transformers' PreTrainedConfig, of generation and of tools: read elsewhere, or without effect on a model's
/// computation.
constexpr std::string_view kCommonKeys =
    "model_type architectures auto_map transformers_version torch_dtype dtype _name_or_path name_or_path _commit_hash "
    "tie_word_embeddings quantization_config id2label label2id num_labels problem_type classifier_dropout use_cache "
    "output_hidden_states output_attentions return_dict use_return_dict chunk_size_feed_forward is_decoder is_causal "
    "pretraining_tp tokenizer_class task_specific_params finetuning_task torchscript pruned_heads prefix use_bfloat16 "
    "_attn_implementation _attn_implementation_autoset attn_implementation _experts_implementation experts_implementation "
    "max_length min_length max_new_tokens min_new_tokens do_sample early_stopping num_beams num_beam_groups diversity_penalty "
    "temperature top_k top_p min_p typical_p repetition_penalty length_penalty no_repeat_ngram_size num_return_sequences "
    "encoder_no_repeat_ngram_size bad_words_ids output_scores return_dict_in_generate remove_invalid_values suppress_tokens "
    "begin_suppress_tokens exponential_decay_length_penalty cross_attention_hidden_size tie_encoder_decoder tf_legacy_loss "
    "is_llama_config transformers.js_config unsloth_version unsloth_fixed gradient_checkpointing model_max_length "
    "max_sequence_length seq_length _pre_quantization_dtype";

/// Keys with one implemented value; other values change a layer's computation.
struct Fixed {
  const char* key;
  bool value;  ///< the implemented value, also assumed if the key is absent
  const char* reason;
};
constexpr Fixed kFixedKeys[] = {{"is_causal", true, "tokens would see later tokens"},
                                {"is_encoder_decoder", false, "only decoders are implemented"},
                                {"add_cross_attention", false, "only decoders are implemented"}};

bool is_in(std::string_view list, std::string_view word) {
  for (auto at = list.find(word); at != std::string_view::npos; at = list.find(word, at + 1)) {
    const auto end = at + word.size();
    if ((at == 0 || list[at - 1] == ' ') && (end == list.size() || list[end] == ' ')) return true;
  }
  return false;
}

/// Returns true for values that request nothing: null, false, 0, or empty.
bool has_no_value(const json& value) {
  return value.is_null() || value == false || value == 0 || value == "" || (value.is_structured() && value.empty());
}

bool is_known(const Architecture& arch, std::string_view key) {
  const auto is_bias = [&](const Bias& bias) { return bias.key != nullptr && key == bias.key; };
  const bool windows = arch.windows != Windows::none || std::string_view(arch.model_type).starts_with("qwen");
  return is_in(kDecoderKeys, key) || is_in(kCommonKeys, key) || key.ends_with("_token_id") || is_bias(arch.qkv) ||
         is_bias(arch.o) || is_bias(arch.mlp) || (windows && is_in(kWindowKeys, key)) ||
         (arch.experts != Experts::none && is_in(kExpertKeys, key)) || (arch.hybrid != Hybrid::none && is_in(kHybridKeys, key));
}

void require_fixed(const ConfigReader& config) {
  for (const Fixed& fixed : kFixedKeys) {
    const auto it = config.object().find(fixed.key);
    // transformers tests whether some keys are present, and then null does not mean absent.
    if (it == config.object().end() || *it == fixed.value || (!fixed.value && has_no_value(*it))) continue;
    fail("{}: {} is {}, which is not implemented ({}): set it to {} or remove it", config.where(), fixed.key, it->dump(),
         fixed.reason, fixed.value);
  }
  const json* layers = config.find("per_layer_config");
  require(layers == nullptr || layers->empty(), "{}: per_layer_config (layers with different sizes) is not implemented",
          config.where());
}

void note_unknown(const ConfigReader& config, const std::vector<std::string>& keys, const Architecture& arch,
                  std::vector<std::string>& notes) {
  if (keys.empty()) return;
  std::vector<std::string> words;
  for (const std::string& key : keys) {
    const std::string value = config.object().at(key).dump();
    words.push_back(value.size() > 40 ? key : fmt::format("{}: {}", key, value));
    if (words.size() == kMaxNamedKeys && keys.size() > kMaxNamedKeys) {
      words.push_back(fmt::format("and {} more", keys.size() - kMaxNamedKeys));
      break;
    }
  }
  notes.push_back(
      fmt::format("{}: ignored, because {} has no such keys: {}", config.where(), arch.model_type, fmt::join(words, ", ")));
}

}  // namespace

void check_config_keys(const ConfigReader& whole, const ConfigReader& text, const Architecture& arch,
                       std::vector<std::string>& notes) {
  const bool nested = &whole != &text;
  require_fixed(whole);
  if (nested) require_fixed(text);
  std::vector<std::string> unknown;
  for (const auto& [key, value] : text.object().items())
    if (!has_no_value(value) && !is_known(arch, key)) unknown.push_back(key);
  note_unknown(text, unknown, arch, notes);
  if (!nested) return;
  unknown.clear();
  for (const auto& [key, value] : whole.object().items()) {
    if (has_no_value(value) || is_in(kVisionKeys, key)) continue;
    const bool decodes = is_known(arch, key) && !is_in(kCommonKeys, key) && !key.ends_with("_token_id");
    const json* inner = text.find(key.c_str());
    if (decodes && (inner == nullptr || *inner != value))
      notes.push_back(fmt::format("{}: {} is {}, but {} in text_config; only text_config counts, as in transformers",
                                  whole.where(), key, value.dump(), inner == nullptr ? "absent" : inner->dump()));
    else if (!decodes && !is_known(arch, key))
      unknown.push_back(key);
  }
  note_unknown(whole, unknown, arch, notes);
}

}  // namespace qft::model
