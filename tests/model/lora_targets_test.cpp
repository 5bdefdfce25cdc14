// Checks the linears that LoRA wraps and their ranks: PEFT's rules for names, and requests that a run file must not make.
#include "qft/core/error.h"
#include "qft/model/adapter_config.h"
#include "qft/model/spec.h"

#include <fstream>
#include <map>
#include <string>

#include "io/temp_dir.h"
#include <gtest/gtest.h>

namespace qft::model {
namespace {

ModelConfig config_of(const std::string& type = "llama") {
  return ModelConfig::parse(
      R"({"model_type": ")" + type + R"(", "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 11,
      "num_attention_heads": 2, "num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 4,
      "shared_expert_intermediate_size": 4, "vocab_size": 10, "tie_word_embeddings": true})",
      "test");
}

LoraConfig lora_of(const std::string& targets) {
  LoraConfig lora;
  lora.rank = 3;
  lora.alpha = 6;
  lora.set_targets(targets);
  return lora;
}

ModelSpec spec_of(const LoraConfig& lora, const std::string& type = "llama") {
  return ModelSpec::build(config_of(type), Finetuning::adapter, lora);
}

/// Returns the ranks by module name, without PEFT's prefix.
std::map<std::string, std::int64_t> ranks(const ModelSpec& spec) {
  std::map<std::string, std::int64_t> all;
  const std::string prefix = "base_model.model.";
  for (const UnitSpec& unit : spec.units)
    for (const ParamSpec& p : unit.params)
      if (p.role == Role::lora_a)
        all[p.name.substr(prefix.size(), p.name.rfind(".lora_A") - prefix.size())] = p.shape[p.shape.size() - 2];
  return all;
}

std::string refusal(const LoraConfig& lora, const std::string& type = "llama") {
  try {
    spec_of(lora, type).require_adapter_targets();
  } catch (const ConfigError& e) {
    return e.what();
  }
  return {};
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(LoraTargets, AnExpressionIsForWholeNames) {
  EXPECT_EQ(ranks(spec_of(lora_of(R"(model\.layers\.(3|1\d)\..*\.(q_proj|up_proj))"))),
            (std::map<std::string, std::int64_t>{{"model.layers.3.self_attn.q_proj", 3},
                                                 {"model.layers.3.mlp.up_proj", 3},
                                                 {"model.layers.10.self_attn.q_proj", 3},
                                                 {"model.layers.10.mlp.up_proj", 3}}));
  EXPECT_TRUE(ranks(spec_of(lora_of("layers.3.*q_proj"))).empty()) << "must match the whole name";
  EXPECT_EQ(ranks(spec_of(lora_of("(?P<all>.*).k_proj"))).size(), 11u);
  EXPECT_EQ(ranks(spec_of(lora_of(".*\\.1{1,2}\\..*v_proj"))).size(), 1u) << "the comma belongs to the expression";
}

TEST(LoraTargets, NamesAreEndsOfPathsFromADotOn) {
  EXPECT_EQ(ranks(spec_of(lora_of("mlp.up_proj"))).size(), 11u);
  EXPECT_EQ(ranks(spec_of(lora_of("layers.1.self_attn.q_proj,model.layers.2.mlp.down_proj"))),
            (std::map<std::string, std::int64_t>{{"model.layers.1.self_attn.q_proj", 3}, {"model.layers.2.mlp.down_proj", 3}}));
  EXPECT_EQ(ranks(spec_of(lora_of("0.self_attn.q_proj"))).size(), 1u) << "not layer 10's";
  EXPECT_EQ(ranks(spec_of(lora_of("shared_expert.up_proj"), "qwen2_moe")).size(), 11u) << "no expert's";
}

TEST(LoraTargets, PatternsGiveRanksAndAlphas) {
  LoraConfig lora = lora_of("q_proj,k_proj,v_proj");
  lora.ranks = {{"q_proj", 5}, {R"(layers\.[01]\..*v_proj)", 2}};
  lora.alphas = {{"self_attn.q_proj", 10}, {"k_proj", 3}};
  const ModelSpec spec = spec_of(lora);
  const auto found = ranks(spec);
  EXPECT_EQ(found.at("model.layers.4.self_attn.q_proj"), 5);
  EXPECT_EQ(found.at("model.layers.1.self_attn.v_proj"), 2);
  EXPECT_EQ(found.at("model.layers.10.self_attn.v_proj"), 3) << "like Python's re.match with (.*\\.)? in front and $ at the end";
  const std::vector<LoraRows>& qkv = spec.layers[0][0].linears()[0]->lora;
  ASSERT_EQ(qkv.size(), 3u);
  EXPECT_EQ(qkv[0].scaling, 10.0 / 5);
  EXPECT_EQ(qkv[1].scaling, 3.0 / 3);
  EXPECT_EQ(qkv[2].scaling, 6.0 / 2);
  EXPECT_EQ(refusal(lora), "");
}

TEST(LoraTargets, WhatMeetsNothingIsRefusedWithNamesThatThereAre) {
  EXPECT_TRUE(has(refusal(lora_of("q_proj.*")), "matches no linear module")) << refusal(lora_of("q_proj.*"));
  EXPECT_TRUE(has(refusal(lora_of("q_proj.*")), "'model.layers.0.self_attn.q_proj'"));
  EXPECT_TRUE(has(refusal(lora_of("mlp.q_proj")), "'mlp.q_proj' is not a linear module"));
  LoraConfig lora = lora_of("q_proj");
  lora.ranks = {{"k_proj", 4}};
  EXPECT_TRUE(has(refusal(lora), "rank_pattern: 'k_proj' matches no module that lora_target wraps")) << refusal(lora);
  lora.ranks = {};
  lora.alphas = {{"proj", 4}};
  EXPECT_TRUE(has(refusal(lora), "alpha_pattern: 'proj' matches no module"));
}

TEST(LoraTargets, WhatCannotBeDoneAsAskedIsRefused) {
  EXPECT_TRUE(has(refusal(lora_of(".*")), "which is not a linear module of a layer")) << refusal(lora_of(".*"));
  EXPECT_TRUE(has(refusal(lora_of("(lm_head|.*q_proj)")), "'lm_head'"));
  EXPECT_TRUE(has(refusal(lora_of(".*(q_proj")), "is not a valid regular expression: missing"));
  EXPECT_TRUE(has(refusal(lora_of("((.*.)*x)*")), "cannot match"));
  LoraConfig lora = lora_of("all");
  lora.ranks = {{"q_proj", 4}, {"self_attn.q_proj", 5}};
  EXPECT_TRUE(has(refusal(lora), "gives 4 and 'self_attn.q_proj' gives 5")) << refusal(lora);
  EXPECT_TRUE(has(refusal(lora_of(R"(.*experts\.[01]\.up_proj)"), "qwen3_moe"), "all experts of a layer need the same LoRA"));
  lora.ranks = {{R"(experts\.\d+\.up_proj)", 4}};
  EXPECT_TRUE(has(refusal(lora, "qwen3_moe"), "expert linears with the same input need the same rank"))
      << refusal(lora, "qwen3_moe");
  lora = lora_of("all");
  lora.dora = true;
  EXPECT_TRUE(has(refusal(lora, "qwen3_moe"), "use_dora is not available for the linears of experts"));
  lora.set_targets("q_proj,o_proj");
  EXPECT_EQ(refusal(lora, "qwen3_moe"), "");
}

TEST(LoraTargets, MagnitudesAreATensorOfEachWrappedLinear) {
  LoraConfig lora = lora_of("q_proj,v_proj");
  lora.dora = true;
  const ModelSpec spec = spec_of(lora);
  std::int64_t rows = 0;
  for (const ParamSpec& p : spec.units[1].params)
    if (p.role == Role::magnitude) {
      EXPECT_EQ(p.shape, (Shape{8}));
      EXPECT_TRUE(p.name.ends_with("_proj.lora_magnitude_vector")) << p.name;
      EXPECT_TRUE(p.trainable && p.weight_decay);
      EXPECT_EQ(p.derived_offset, 2 * rows);
      rows += p.shape[0];
    }
  EXPECT_EQ(rows, 16);
  EXPECT_EQ(spec.units[1].derived_numel, 2 * rows);
}

TEST(AdapterConfig, HasThePatternsAsTheyWereGiven) {
  const test::TempDir dir;
  LoraConfig lora = lora_of(R"(.*layers\.[0-3]\..*(q|v)_proj)");
  lora.dora = true;
  lora.ranks = {{"q_proj", 7}, {R"(.*\.v_proj)", 2}};
  lora.alphas = {{"v_proj", 2.5}};
  std::ofstream(dir.path() / kAdapterConfigFile) << adapter_config_json(lora, "m");
  const LoraConfig again = read_adapter_config(dir.path()).lora;
  EXPECT_EQ(again.target_pattern, lora.target_pattern);
  EXPECT_TRUE(again.targets.empty());
  EXPECT_TRUE(again.dora);
  EXPECT_EQ(again.ranks, lora.ranks);
  EXPECT_EQ(again.alphas, lora.alphas);
}

TEST(AdapterConfig, RefusesAnotherKindOfAdapterByName) {
  const test::TempDir dir;
  std::ofstream(dir.path() / kAdapterConfigFile) << R"({"peft_type": "IA3", "r": 4})";
  try {
    read_adapter_config(dir.path());
    FAIL();
  } catch (const Error& e) {
    EXPECT_TRUE(has(e.what(), "peft_type IA3")) << e.what();
  }
}

}  // namespace
}  // namespace qft::model
