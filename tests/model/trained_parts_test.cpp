#include "qft/model/trained_parts.h"

#include "qft/core/error.h"
#include "qft/model/spec.h"

#include <gtest/gtest.h>

namespace qft::model {
namespace {

constexpr const char* kModel =
    R"("hidden_size":24,"intermediate_size":40,"num_hidden_layers":4,"num_attention_heads":3,"num_key_value_heads":1,)"
    R"("head_dim":8,"vocab_size":101,"num_experts":4,"num_experts_per_tok":2,"moe_intermediate_size":16)";

ModelConfig config_of(const std::string& type, bool tied) {
  return ModelConfig::parse(
      "{\"model_type\":\"" + type + "\"," + kModel + ",\"tie_word_embeddings\":" + (tied ? "true}" : "false}"), "test");
}

ModelSpec frozen(FreezeConfig freeze, bool tied = false, const std::string& type = "qwen3") {
  return ModelSpec::build(config_of(type, tied), Finetuning::freeze, {}, {}, Head::language_model, freeze);
}

ModelSpec beside_lora(const std::vector<std::string>& modules, bool tied = false, const std::string& type = "qwen3",
                      const std::string& targets = "q_proj") {
  LoraConfig lora;
  lora.rank = 2;
  lora.alpha = 4;
  lora.set_targets(targets);
  lora.modules_to_save = modules;
  return ModelSpec::build(config_of(type, tied), Finetuning::adapter, lora);
}

/// Returns the names of the base tensors that train.
std::set<std::string> trained(const ModelSpec& spec) {
  std::set<std::string> names;
  for (const UnitSpec& unit : spec.units)
    for (const ParamSpec& p : unit.params)
      if (p.trainable && p.role == Role::base) names.insert(p.name);
  return names;
}

template <class F>
void expect_refused(const F& build, const std::string& words) {
  try {
    build();
    FAIL() << "accepted; expected: " << words;
  } catch (const ConfigError& e) {
    EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << e.what();
  }
}

TEST(FreezeConfig, CountsLayersFromEitherEnd) {
  using Layers = std::set<std::int64_t>;
  EXPECT_EQ(FreezeConfig::last_layers(2, 4), (Layers{2, 3}));
  EXPECT_EQ(FreezeConfig::last_layers(-3, 4), (Layers{0, 1, 2}));
  EXPECT_EQ(FreezeConfig::last_layers(9, 4), (Layers{0, 1, 2, 3}));
  EXPECT_EQ(FreezeConfig::last_layers(0, 4), Layers{});
  EXPECT_EQ(FreezeConfig::expanded_layers(2, 8), (Layers{3, 7}));
  expect_refused([] { FreezeConfig::expanded_layers(3, 8); }, "8 layers");
}

TEST(FreezeConfig, TrainsPartsOfItsLayersAndModulesOutsideOfThem) {
  const ModelSpec spec = frozen({{3}, {"self_attn", "input_layernorm"}, {"lm_head"}});
  const std::string layer = "model.layers.3.";
  std::set<std::string> expected{"lm_head.weight", layer + "input_layernorm.weight"};
  for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm"})
    expected.insert(layer + "self_attn." + name + ".weight");
  EXPECT_EQ(trained(spec), expected);
  EXPECT_EQ(spec.lowest_trained_block(), 4);
}

TEST(FreezeConfig, TakesAWordForEveryNameThatHasIt) {
  const auto names = trained(frozen({{}, {"all"}, {"norm"}}));
  EXPECT_TRUE(names.contains("model.norm.weight"));
  EXPECT_EQ(names.size(), 1U + 4 * 4);  // each layer's two norms, and its norms of q and k
}

TEST(FreezeConfig, NamesWhatIsNotThere) {
  expect_refused([] { frozen({{1}, {"attention"}, {}}); },
                 "freeze_trainable_modules 'attention' is not a module of this qwen3, which has input_layernorm, mlp, "
                 "post_attention_layernorm, self_attn");
  expect_refused([] { frozen({{1}, {"all"}, {"lm_head"}}, /*tied=*/true); }, "'lm_head' is not a module");
  expect_refused([] { frozen({{}, {"all"}, {}}); }, "nothing is trained");
}

TEST(FreezeConfig, MayTrainExperts) {
  EXPECT_TRUE(trained(frozen({{3}, {"mlp"}, {}}, false, "qwen3_moe")).contains("model.layers.3.mlp.experts.gate_up_proj"));
}

TEST(ModulesToSave, AreFoundByTheEndOfTheirPath) {
  EXPECT_EQ(trained(beside_lora({"lm_head"})), std::set<std::string>{"lm_head.weight"});
  EXPECT_EQ(trained(beside_lora({"norm"})).size(), 1U + 4 * 4);
  EXPECT_EQ(trained(beside_lora({"model.norm"})), std::set<std::string>{"model.norm.weight"});
  EXPECT_EQ(trained(beside_lora({"mlp"})).size(), 3U * 4);
  EXPECT_FALSE(is_saved_whole({"proj"}, "model.norm.weight"));
}

TEST(ModulesToSave, AreOfTheAdapterUnderPeftsNames) {
  const ModelSpec spec = beside_lora({"lm_head"});
  const ParamSpec& head = spec.units.back().params.back();
  ASSERT_EQ(spec.in_adapter(head).size(), 1U);
  EXPECT_EQ(spec.in_adapter(head).front().name, "base_model.model.lm_head.weight");
  EXPECT_TRUE(spec.in_adapter(spec.units.front().params.front()).empty());
}

TEST(ModulesToSave, PartATiedHeadFromTheEmbeddings) {
  EXPECT_FALSE(beside_lora({"norm"}, /*tied=*/true).untied);
  const ModelSpec spec = beside_lora({"embed_tokens"}, /*tied=*/true);
  EXPECT_TRUE(spec.untied);
  EXPECT_EQ(trained(spec), std::set<std::string>{"model.embed_tokens.weight"});
  const ParamSpec& head = spec.units.back().params.back();
  EXPECT_EQ(head.name, "lm_head.weight");
  EXPECT_EQ(head.in_files().front().name, "model.embed_tokens.weight") << "it starts as the embeddings";
  EXPECT_EQ(spec.units_of_block(spec.head_unit()), std::vector<int>{spec.head_unit()});
}

TEST(ModulesToSave, AreRefusedByNameWhereTheyCannotTrain) {
  expect_refused([] { beside_lora({"score"}); }, "'score' is not a module of this qwen3, which has ");
  expect_refused([] { beside_lora({"k_proj"}); }, "q_proj, k_proj, v_proj are computed together");
  expect_refused([] { beside_lora({"self_attn"}); }, "but LoRA wraps it");
  expect_refused([] { beside_lora({"mlp"}, false, "qwen3_moe"); }, "experts in full beside an adapter");
}

TEST(ModulesToSave, AreOfARewardModelsAdapterButItsHeadIsNot) {
  LoraConfig lora;
  lora.rank = 2;
  lora.set_targets("q_proj");
  lora.modules_to_save = {"embed_tokens"};
  const ModelSpec spec = ModelSpec::build(config_of("qwen3", /*tied=*/true), Finetuning::adapter, lora, {}, Head::value);
  EXPECT_FALSE(spec.untied) << "it has no head that could be untied from the embeddings";
  EXPECT_FALSE(spec.in_adapter(spec.units.front().params.front()).empty());
  const ParamSpec& bias = spec.units.back().params.back();
  EXPECT_EQ(bias.role, Role::value_head);
  EXPECT_TRUE(bias.trainable);
  EXPECT_TRUE(spec.in_adapter(bias).empty());
}

TEST(ModulesToSave, AreNotQuantised) {
  LoraConfig lora;
  lora.rank = 2;
  lora.set_targets("q_proj");
  lora.modules_to_save = {"mlp"};
  const ModelSpec spec =
      ModelSpec::build(config_of("llama", false), Finetuning::adapter, lora, WeightStorage::in({ops::QuantFormat::int8}));
  for (const ParamSpec& p : spec.units[1].params) {
    const bool matrix = p.shape.size() == 2 && p.role == Role::base;
    EXPECT_EQ(p.is_quantized(), matrix && !p.path.starts_with("mlp")) << p.path;
  }
}

TEST(Quantised, IsAModelThatRunsAsItIs) {
  const auto spec =
      ModelSpec::build(config_of("llama", false), Finetuning::full, {}, WeightStorage::in({ops::QuantFormat::int8}));
  for (const ParamSpec& p : spec.units[1].params) EXPECT_EQ(p.is_quantized(), p.shape.size() == 2) << p.path;
}

}  // namespace
}  // namespace qft::model
