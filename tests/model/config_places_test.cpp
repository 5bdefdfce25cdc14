// config.json gives a value in several places, or has unknown keys: transformers' order applies, or qft rejects the file or adds
// a note.
#include "qft/core/error.h"
#include "qft/model/config.h"

#include <algorithm>
#include <string>

#include "io/temp_dir.h"
#include "tiny_config.h"
#include <gtest/gtest.h>

namespace qft::model {
namespace {

using nlohmann::json;
using test::contains;
using test::error_of;

ModelConfig parse_json(const json& config) {
  return ModelConfig::parse(config.dump(), "c");
}

ModelConfig parse_json(json config, const json& changes) {
  config.update(changes);
  return parse_json(config);
}

bool has_note(const ModelConfig& config, const std::string& part) {
  return std::ranges::any_of(config.notes, [&](const std::string& note) { return note.find(part) != std::string::npos; });
}

std::string refusal_of(const std::string& type, const json& changes) {
  return error_of([&] { parse_json(base(type), changes); });
}

TEST(RopeConfig, RopeScalingCountsBeforeRopeParameters) {
  const json parameters = {{"rope_type", "default"}, {"rope_theta", 5000.0}};
  const json scaling = {{"rope_type", "linear"}, {"factor", 4.0}, {"rope_theta", 700.0}};
  const ModelConfig both = parse_json(base("qwen3"), {{"rope_parameters", parameters}, {"rope_scaling", scaling}});
  EXPECT_EQ(both.rope.linear, 4.0);
  EXPECT_EQ(both.rope.theta, 700.0);
  EXPECT_TRUE(has_note(both, "rope_scaling is used"));
  for (const json& nothing : {json(), json::object()}) {
    const ModelConfig one = parse_json(base("qwen3"), {{"rope_parameters", parameters}, {"rope_scaling", nothing}});
    EXPECT_EQ(one.rope.theta, 5000.0) << nothing;
    EXPECT_TRUE(one.notes.empty()) << one.notes.front();
  }
  const ModelConfig same = parse_json(base("qwen3"), {{"rope_parameters", scaling}, {"rope_scaling", scaling}});
  EXPECT_EQ(same.rope.linear, 4.0);
  EXPECT_TRUE(same.notes.empty());
}

// As in Qwen's model cards: the theta in rope_parameters would be replaced by the default.
TEST(RopeConfig, AScalingThatLosesThetaIsRefused) {
  const json scaling = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32}};
  json changes = {{"rope_scaling", scaling}, {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e6}}}};
  EXPECT_TRUE(contains(refusal_of("qwen3", changes), "rope_theta 10000, not 1000000.0"));
  changes["rope_theta"] = 1e6;  // is found beside them
  EXPECT_EQ(parse_json(base("qwen3"), changes).rope.theta, 1e6);
  changes.erase("rope_theta");
  changes["rope_parameters"]["rope_theta"] = 10000;
  EXPECT_EQ(parse_json(base("qwen3"), changes).rope.yarn->factor, 4.0);
  EXPECT_TRUE(contains(refusal_of("qwen3", {{"rope_scaling", "yarn"}}), "rope_scaling is \"yarn\""));
}

TEST(RopeConfig, OriginalPositionsBesideTheScalingCountFirst) {
  const auto original = [](const json& changes) { return parse_json(base("llama"), changes).first_positions(); };
  const json yarn = {{"rope_type", "yarn"}, {"factor", 2.0}};
  json inside = yarn;
  inside["original_max_position_embeddings"] = 64;
  json changes = {{"max_position_embeddings", 256}, {"rope_scaling", yarn}};
  EXPECT_EQ(original(changes), 256);
  changes["original_max_position_embeddings"] = 32;
  EXPECT_EQ(original(changes), 32);
  changes["rope_scaling"] = inside;
  EXPECT_EQ(original(changes), 32);
  EXPECT_TRUE(has_note(parse_json(base("llama"), changes), "is 32 beside the rope scaling and 64 inside"));
  changes["original_max_position_embeddings"] = nullptr;
  EXPECT_EQ(original(changes), 64);
  // llama3 without this key starts at max_position_embeddings and has no other defaults.
  json llama3 = {{"rope_type", "llama3"}, {"factor", 8.0}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}};
  EXPECT_EQ(original({{"max_position_embeddings", 256}, {"rope_scaling", llama3}}), 256);
  for (const char* key : {"factor", "low_freq_factor", "high_freq_factor"}) {
    json lacking = llama3;
    lacking.erase(key);
    EXPECT_TRUE(contains(refusal_of("llama", {{"rope_scaling", lacking}}), key));
  }
  // A longer context replaces all of them.
  changes["original_max_position_embeddings"] = 32;
  const ModelConfig longer = parse_json(base("llama"), changes).scaled_to(128, "yarn");
  EXPECT_EQ(longer.rope.yarn->factor, 4.0);
  EXPECT_EQ(longer.first_positions(), 32);
}

TEST(RopeConfig, ParametersByKindOfLayerAreRefused) {
  const json kinds = {{"full_attention", {{"rope_type", "default"}, {"rope_theta", 300.0}}}};
  for (const char* type : {"qwen3", "llama", "qwen3_next"})
    for (const char* key : {"rope_parameters", "rope_scaling"})
      EXPECT_TRUE(contains(refusal_of(type, {{key, kinds}}), "'full_attention' has rotary parameters for one kind of layer"))
          << type;
  EXPECT_TRUE(has_note(parse_json(base("llama"), {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}, {"extra", 3}}}}),
                       "extra is 3, but is ignored"));
}

TEST(RopeConfig, ThetaBesideAndWithinAndByDefault) {
  EXPECT_EQ(parse_json(base("mixtral")).rope.theta, 1e6) << "transformers' default for this architecture only";
  EXPECT_EQ(parse_json(base("mistral")).rope.theta, 1e4);
  const ModelConfig both =
      parse_json(base("qwen2"), {{"rope_theta", 5e5}, {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 7e5}}}});
  EXPECT_EQ(both.rope.theta, 7e5);
  EXPECT_TRUE(has_note(both, "rope_theta is 500000, but 700000 in rope_parameters"));
  // Whole heads are rotated, whatever the file says; a table for a part of them would not fit.
  EXPECT_TRUE(
      has_note(parse_json(base("llama"), {{"partial_rotary_factor", 0.5}}), "partial_rotary_factor is 0.5, but is ignored"));
  EXPECT_TRUE(
      contains(refusal_of("llama", {{"partial_rotary_factor", 0.5}, {"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}}),
               "rotates whole heads: remove it"));
}

TEST(ModelConfig, KeysThatTurnAttentionAroundAreRefused) {
  for (const json& value : {json(false), json(), json(0)})
    EXPECT_TRUE(contains(refusal_of("qwen2", {{"is_causal", value}}), "is_causal is " + value.dump()));
  EXPECT_TRUE(parse_json(base("qwen2"), {{"is_causal", true}}).notes.empty());
  EXPECT_TRUE(contains(refusal_of("llama", {{"add_cross_attention", true}}), "add_cross_attention is true"));
  EXPECT_TRUE(contains(refusal_of("llama", {{"per_layer_config", {{"0", {{"intermediate_size", 8}}}}}}), "per_layer_config"));
  EXPECT_TRUE(parse_json(base("llama"), {{"is_encoder_decoder", false}, {"per_layer_config", nullptr}}).notes.empty());
}

TEST(ModelConfig, KeysThatNobodyReadsAreNamed) {
  const ModelConfig odd =
      parse_json(base("llama"), {{"logit_scale", 0.25}, {"sliding_window", 8}, {"use_qk_norm", false}, {"x", json()}});
  ASSERT_EQ(odd.notes.size(), 1u);
  EXPECT_EQ(odd.notes.front(), "c: ignored, because llama has no such keys: logit_scale: 0.25, sliding_window: 8");
  EXPECT_TRUE(parse_json(base("mistral"), {{"sliding_window", 8}}).notes.empty());
  EXPECT_TRUE(has_note(parse_json(base("qwen2"), {{"num_experts", 8}}), "num_experts: 8"));
  EXPECT_TRUE(has_note(parse_json(base("qwen2"), {{"attention_bias", true}}), "attention_bias: true"))
      << "qwen2 always has biases";
}

/// Written as by transformers 5 and 4, with additions by tools and hubs.
TEST(ModelConfig, FilesOfReleasedModelsHaveNoNotes) {
  const json written = {{"architectures", {"X"}},       {"bos_token_id", 1},           {"eos_token_id", 2},
                        {"hidden_act", "silu"},         {"initializer_range", 0.02},   {"use_cache", true},
                        {"torch_dtype", "bfloat16"},    {"transformers_version", "5"}, {"attention_dropout", 0.0},
                        {"pretraining_tp", 1},          {"rope_scaling", nullptr},     {"rope_theta", 1e6},
                        {"_name_or_path", "a/b"},       {"unsloth_version", "2026"},   {"id2label", {{"0", "LABEL_0"}}},
                        {"auto_map", {{"x", "y"}}},     {"temperature", 0.6},          {"_attn_implementation_autoset", true},
                        {"max_position_embeddings", 64}};
  for (const char* type : {"llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "qwen3_next", "olmo2"}) {
    json config = base(type);
    config.update(written);
    if (std::string(type).starts_with("qwen"))
      config.update({{"use_sliding_window", false}, {"sliding_window", 32}, {"max_window_layers", 28}});
    if (std::string(type) == "llama")
      config.update({{"mlp_bias", false}, {"is_llama_config", true}, {"rope_interleaved", false}});
    const ModelConfig parsed = parse_json(config);
    EXPECT_TRUE(parsed.notes.empty()) << parsed.notes.front();
  }
}

TEST(ModelConfig, OfAModelThatSeesTextConfigAloneCounts) {
  json text = base("qwen3_5");
  for (const char* key : {"model_type", "tie_word_embeddings"}) text.erase(key);
  text["model_type"] = "qwen3_5_text";
  const json whole = {{"model_type", "qwen3_5"}, {"text_config", text},        {"vision_config", {{"depth", 2}}},
                      {"image_token_id", 5},     {"vision_start_token_id", 6}, {"language_model_only", false}};
  EXPECT_TRUE(parse_json(whole).notes.empty());
  EXPECT_TRUE(has_note(parse_json(whole, {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}}}),
                       "but absent in text_config; only text_config counts"));
  EXPECT_TRUE(has_note(parse_json(whole, {{"hidden_size", 99}}), "hidden_size is 99, but 24 in text_config"));
  EXPECT_TRUE(parse_json(whole, {{"hidden_size", 24}}).notes.empty());
  EXPECT_TRUE(has_note(parse_json(whole, {{"audio_config", {{"a", 1}}}}), "audio_config"));
  json blind = whole;
  blind["text_config"]["is_causal"] = false;
  EXPECT_TRUE(contains(error_of([&] { parse_json(blind); }), "text_config: is_causal is false"));
}

}  // namespace
}  // namespace qft::model
