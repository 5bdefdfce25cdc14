#include "qft/model/spec.h"

#include "qft/core/error.h"
#include "qft/model/config.h"

#include "tiny_config.h"
#include <gtest/gtest.h>

namespace qft::model {
namespace {

void expect_refused(const nlohmann::json& config, const std::string& word) {
  try {
    ModelConfig::parse(config.dump(), "x/config.json");
    FAIL() << "accepted " << config;
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("x/config.json"), std::string::npos) << e.what();
  }
}

TEST(ModelConfig, KnowsWhatEachArchitectureLeavesUnsaid) {
  const auto qwen2 = ModelConfig::parse(base("qwen2").dump(), "t");
  EXPECT_TRUE(qwen2.qkv_bias && !qwen2.o_bias && qwen2.qk_norm == QkNorm::none);
  EXPECT_EQ(qwen2.head_dim, 8);
  const auto qwen3 = ModelConfig::parse(base("qwen3").dump(), "t");
  EXPECT_TRUE(!qwen3.qkv_bias && qwen3.qk_norm == QkNorm::heads);
  EXPECT_EQ(qwen3.head_dim, 128);
  auto mistral = base("mistral");
  mistral["attention_bias"] = mistral["mlp_bias"] = true;  // as in transformers
  const auto plain = ModelConfig::parse(mistral.dump(), "t");
  EXPECT_TRUE(!plain.qkv_bias && !plain.o_bias && !plain.mlp_bias && plain.qk_norm == QkNorm::none);
  EXPECT_EQ(plain.architecture, "MistralForCausalLM");
  EXPECT_EQ(plain.head_dim, 8);
  auto biased = base("llama");
  biased["attention_bias"] = true;
  const auto llama = ModelConfig::parse(biased.dump(), "t");
  EXPECT_TRUE(llama.qkv_bias && llama.o_bias && llama.qk_norm == QkNorm::none);
  auto plain_olmo = base("olmo2");
  plain_olmo.erase("rms_norm_eps");
  const auto olmo = ModelConfig::parse(plain_olmo.dump(), "t");
  EXPECT_TRUE(olmo.norm_after && olmo.norms == NormKind::rounded_last && olmo.qk_norm == QkNorm::whole && !olmo.qkv_bias);
  EXPECT_EQ(olmo.rms_norm_eps, 1e-5);
  auto biased_arcee = base("arcee");
  biased_arcee["mlp_bias"] = true;
  biased_arcee["hidden_act"] = "relu2";
  const auto arcee = ModelConfig::parse(biased_arcee.dump(), "t");
  EXPECT_TRUE(arcee.mlp_bias && arcee.feed_forward == FeedForward::squared_relu && !arcee.norm_after);
}

TEST(ModelConfig, RefusesByNameWhatIsNotImplemented) {
  expect_refused(base("mamba"), "mamba");
  auto c = base("llama");
  c["rope_scaling"] = {{"rope_type", "longrope"}, {"factor", 4.0}};
  expect_refused(c, "longrope");
  c["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 0.5}};
  expect_refused(c, "factor is 0.5");
  c = base("qwen2");
  c["hidden_act"] = "gelu";
  expect_refused(c, "hidden_act 'gelu' of qwen2 is not implemented (implemented: silu)");
  c = base("arcee");
  c["hidden_act"] = "silu";
  expect_refused(c, "hidden_act 'silu' of arcee is not implemented (implemented: relu2)");
  c = base("qwen2");
  c["num_key_value_heads"] = 2;
  expect_refused(c, "num_key_value_heads 2");
  c = base("qwen2");
  c.erase("hidden_size");
  expect_refused(c, "hidden_size");
  c["hidden_size"] = "big";
  expect_refused(c, "\"big\"");
  c["hidden_size"] = -3;
  expect_refused(c, "-3");
}

TEST(ModelConfig, ReadsSlidingWindowsAsTransformersDoes) {
  const auto windows = [](nlohmann::json c, const nlohmann::json& changes) {
    c.update(changes);
    return ModelConfig::parse(c.dump(), "t").windows;
  };
  using List = std::vector<std::int64_t>;
  for (const char* type : {"qwen2", "qwen3"}) {
    const auto c = base(type);
    EXPECT_EQ(windows(c, {{"use_sliding_window", false}, {"sliding_window", 8}, {"max_window_layers", 0}}), (List{0, 0}));
    EXPECT_EQ(windows(c, {{"use_sliding_window", true}, {"sliding_window", 8}, {"max_window_layers", 1}}), (List{0, 8}));
    EXPECT_EQ(windows(c, {{"use_sliding_window", true}, {"sliding_window", 8}}), (List{0, 0})) << "from layer 28 on";
    EXPECT_EQ(windows(c, {{"use_sliding_window", true}, {"max_window_layers", 0}}), (List{4096, 4096}));
    EXPECT_EQ(windows(c, {{"use_sliding_window", true}, {"sliding_window", nullptr}, {"max_window_layers", 0}}), (List{0, 0}));
    EXPECT_EQ(
        windows(c,
                {{"use_sliding_window", true}, {"sliding_window", 8}, {"layer_types", {"sliding_attention", "full_attention"}}}),
        (List{8, 0}));
  }
  EXPECT_EQ(windows(base("mistral"), {{"sliding_window", 8}, {"max_window_layers", 1}}), (List{8, 8}));
  EXPECT_EQ(windows(base("mistral"), {{"sliding_window", nullptr}}), (List{0, 0}));
  EXPECT_EQ(windows(base("mistral"), nlohmann::json::object()), (List{4096, 4096}));
  EXPECT_EQ(ModelConfig::parse(base("llama").dump(), "t").window(1), 0);
  const auto refused = [](nlohmann::json c, const nlohmann::json& changes, const std::string& word) {
    c.update(changes);
    expect_refused(c, word);
  };
  refused(base("qwen2"), {{"layer_types", {"full_attention", "linear_attention"}}}, "layer_types[1] is \"linear_attention\"");
  refused(base("qwen2"), {{"layer_types", {"full_attention"}}}, "layer_types has 1 entries, but num_hidden_layers is 2");
  refused(base("qwen2"), {{"layer_types", {"full_attention", "sliding_attention"}}}, "use_sliding_window is not true");
  refused(base("qwen3"), {{"use_sliding_window", true}, {"sliding_window", 0}}, "'sliding_window' is 0");
  refused(base("mistral"), {{"layer_types", {"sliding_attention", "full_attention"}}},
          "every layer of mistral has the sliding_window of 4096");
  refused(base("qwen2"), {{"layer_types", "full_attention"}}, "layer_types is \"full_attention\", expected a list of 2");
  refused(base("llama"), {{"use_sliding_window", true}}, "use_sliding_window is true, but llama has no sliding window");
  refused(base("llama"), {{"layer_types", {"sliding_attention", "full_attention"}}}, "but llama has no sliding window");
}

TEST(ModelConfig, ReadsRopeInBothOfTransformersLayouts) {
  auto old_style = base("llama");
  old_style["rope_theta"] = 500000.0;
  old_style["rope_scaling"] = {{"rope_type", "llama3"},
                               {"factor", 32.0},
                               {"low_freq_factor", 1.0},
                               {"high_freq_factor", 4.0},
                               {"original_max_position_embeddings", 8192}};
  auto new_style = base("llama");
  new_style["rope_parameters"] = old_style["rope_scaling"];
  new_style["rope_parameters"]["rope_theta"] = 500000.0;
  const auto a = ModelConfig::parse(old_style.dump(), "a"), b = ModelConfig::parse(new_style.dump(), "b");
  EXPECT_EQ(a.inverse_frequencies(), b.inverse_frequencies());
  EXPECT_EQ(a.rope.theta, 500000.0);
  EXPECT_EQ(a.rope.llama3->factor, 32.0);
}

TEST(SubLayerSpec, CountsThePairsWithinAWindow) {
  EXPECT_EQ(visible_pairs(10, 0), 55);
  EXPECT_EQ(visible_pairs(10, 10), 55);
  EXPECT_EQ(visible_pairs(10, 1000), 55);
  EXPECT_EQ(visible_pairs(10, 1), 10);
  EXPECT_EQ(visible_pairs(10, 3), 1 + 2 + 8 * 3);
  EXPECT_EQ(visible_pairs(0, 3), 0);
}

TEST(Spec, FusedProjectionsAreAdjacent) {
  LoraConfig lora;
  lora.rank = 4;
  lora.alpha = 8;
  lora.set_targets("q_proj, v_proj,down_proj");
  const auto spec = ModelSpec::build(ModelConfig::parse(base("qwen2").dump(), "t"), Finetuning::adapter, lora);
  const auto find = [&](const std::string& tail) -> const ParamSpec& {
    for (const auto& p : spec.units[1].params)
      if (p.name.ends_with(tail)) return p;
    throw std::runtime_error(tail);
  };
  const auto follows = [&](const std::string& a, const std::string& b) {
    return find(a).offset + find(a).numel == find(b).offset;
  };
  EXPECT_TRUE(follows("q_proj.weight", "k_proj.weight") && follows("k_proj.weight", "v_proj.weight"));
  EXPECT_TRUE(follows("q_proj.bias", "k_proj.bias") && follows("gate_proj.weight", "up_proj.weight"));
  EXPECT_TRUE(follows("q_proj.lora_A.weight", "v_proj.lora_A.weight"));
  EXPECT_TRUE(follows("q_proj.lora_B.weight", "v_proj.lora_B.weight"));
  EXPECT_EQ(find("q_proj.lora_A.weight").name, "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight");
  EXPECT_EQ(spec.num_params(true), 2 * (4 * 24 + 24 * 4 + 4 * 24 + 8 * 4 + 4 * 40 + 24 * 4));
}

TEST(Spec, NormsLieBeforeOrAfterTheirSubLayers) {
  const auto names = [](std::string_view type) {
    const auto spec = ModelSpec::build(ModelConfig::parse(base(type).dump(), "t"), Finetuning::full, {});
    std::vector<std::string> paths;
    for (const SubLayerSpec& sublayer : spec.layers[1])
      paths.push_back((sublayer.norm_after ? "after: " : "before: ") + sublayer.norm);
    return paths;
  };
  using List = std::vector<std::string>;
  EXPECT_EQ(names("llama"), (List{"before: input_layernorm.weight", "before: post_attention_layernorm.weight"}));
  EXPECT_EQ(names("olmo2"), (List{"after: post_attention_layernorm.weight", "after: post_feedforward_layernorm.weight"}));
}

TEST(Spec, TiedHeadUsesTheEmbeddingUnit) {
  auto config = base("llama");
  auto spec = ModelSpec::build(ModelConfig::parse(config.dump(), "t"), Finetuning::full, {});
  EXPECT_EQ(spec.units_of_block(spec.head_unit()), (std::vector<int>{spec.head_unit(), 0}));
  EXPECT_EQ(spec.units.back().params.size(), 1u);
  config["tie_word_embeddings"] = false;
  spec = ModelSpec::build(ModelConfig::parse(config.dump(), "t"), Finetuning::full, {});
  EXPECT_EQ(spec.units.back().params.back().name, "lm_head.weight");
  EXPECT_EQ(spec.units_of_block(spec.head_unit()).size(), 1u);
}

TEST(Spec, AClassifiersHeadIsAmongTheTensorsOfTheModelOrTheAdapter) {
  auto config = base("llama");
  config["tie_word_embeddings"] = false;
  const auto parsed = ModelConfig::parse(config.dump(), "t");
  LoraConfig lora;
  lora.rank = 3;
  lora.set_targets("all");
  for (const bool adapted : {true, false}) {
    const auto spec =
        ModelSpec::build(parsed, adapted ? Finetuning::adapter : Finetuning::full,
                         adapted ? AdapterConfig(lora) : AdapterConfig{}, WeightStorage::in({}), Head::classifier(5));
    const auto& params = spec.units.back().params;
    ASSERT_EQ(params.size(), 2U);
    EXPECT_EQ(params[1].name, "score.weight");
    EXPECT_EQ(params[1].shape, (Shape{5, spec.config.hidden_size}));
    EXPECT_TRUE(params[1].trainable && params[1].weight_decay && spec.in_model(params[1]));
    ASSERT_EQ(spec.in_adapter(params[1]).size(), adapted ? 1U : 0U);
    if (adapted) {
      EXPECT_EQ(spec.in_adapter(params[1]).front().name, "base_model.model.score.weight");
    }
    EXPECT_TRUE(spec.config.is_other("lm_head.weight"));
    EXPECT_FALSE(spec.keeps("lm_head.weight"));
  }
}

TEST(Spec, ConfigJsonSaysHowManyLabelsAClassifierHas) {
  auto config = base("llama");
  EXPECT_EQ(ModelConfig::parse(config.dump(), "t").labels, 0);
  config["architectures"] = {"LlamaForSequenceClassification"};
  EXPECT_EQ(ModelConfig::parse(config.dump(), "t").labels, 2);
  config["id2label"] = {{"0", "a"}, {"1", "b"}, {"2", "c"}};
  config["problem_type"] = "regression";
  const auto parsed = ModelConfig::parse(config.dump(), "t");
  EXPECT_EQ(parsed.labels, 3);
  EXPECT_EQ(parsed.problem_type, "regression");
}

TEST(Spec, ValueHeadTakesThePlaceOfLmHeadAndTrainsBesideLora) {
  auto config = base("llama");
  for (const bool tied : {true, false}) {
    config["tie_word_embeddings"] = tied;
    LoraConfig lora;
    lora.rank = 3;
    lora.set_targets("all");
    const auto parsed = ModelConfig::parse(config.dump(), "t");
    const auto spec = ModelSpec::build(parsed, Finetuning::adapter, lora, WeightStorage::in({}), Head::value);
    EXPECT_EQ(spec.units_of_block(spec.head_unit()), (std::vector<int>{spec.head_unit()}));
    EXPECT_EQ(spec.config.is_other("lm_head.weight"), !tied);
    const auto& params = spec.units.back().params;
    ASSERT_EQ(params.size(), 3U);
    EXPECT_FALSE(params[0].trainable);
    EXPECT_EQ(params[1].name, "v_head.summary.weight");
    EXPECT_EQ(params[1].shape, (Shape{1, spec.config.hidden_size}));
    EXPECT_TRUE(params[1].trainable && params[1].weight_decay);
    EXPECT_EQ(params[2].name, "v_head.summary.bias");
    EXPECT_TRUE(params[2].trainable && !params[2].weight_decay);
    EXPECT_EQ(spec.num_params(true),
              ModelSpec::build(parsed, Finetuning::adapter, lora).num_params(true) + spec.config.hidden_size + 1);
  }
}

TEST(Spec, ParametersDoNotOverlap) {
  LoraConfig lora;
  lora.rank = 3;
  lora.alpha = 3;
  lora.set_targets("all");
  for (const std::string_view type : architectures()) {
    const auto spec = ModelSpec::build(ModelConfig::parse(base(type).dump(), "t"), Finetuning::adapter, lora);
    for (const auto& unit : spec.units) {
      std::int64_t end[2] = {0, 0};
      for (const auto& p : unit.params) {
        EXPECT_GE(p.offset, end[p.trainable]) << p.name;
        end[p.trainable] = p.offset + p.numel;
      }
      EXPECT_LE(end[0], unit.frozen_numel);
      EXPECT_LE(end[1], unit.trainable_numel);
    }
  }
}

/// Expects "partial" or "sharded" along the tensor axis, by the end of the path.
TEST(Spec, SaysWhatEachGradientIsAlongTheMesh) {
  LoraConfig lora;
  lora.rank = 2;
  lora.alpha = 2;
  lora.set_targets("all");
  auto config = base("qwen3");
  config["attention_bias"] = true;
  const auto spec = ModelSpec::build(ModelConfig::parse(config.dump(), "t"), Finetuning::adapter, lora, {}, Head::language_model,
                                     {}, {.rank = 1, .ranks = 3});
  const std::vector<std::pair<std::string, GradPlacement>> expected{{"input_layernorm.weight", GradPlacement::partial},
                                                                    {"q_proj.weight", GradPlacement::sharded},
                                                                    {"k_proj.weight", GradPlacement::partial},  // one key head
                                                                    {"o_proj.weight", GradPlacement::sharded},
                                                                    {"q_norm.weight", GradPlacement::partial},
                                                                    {"q_proj.lora_A.weight", GradPlacement::partial},
                                                                    {"q_proj.lora_B.weight", GradPlacement::sharded},
                                                                    {"o_proj.lora_A.weight", GradPlacement::sharded},
                                                                    {"o_proj.lora_B.weight", GradPlacement::partial},
                                                                    {"up_proj.lora_A.weight", GradPlacement::partial},
                                                                    {"down_proj.lora_A.weight", GradPlacement::sharded},
                                                                    {"embed_tokens.weight", GradPlacement::sharded},
                                                                    {"q_proj.bias", GradPlacement::sharded},
                                                                    {"o_proj.bias", GradPlacement::partial},
                                                                    {"model.norm.weight", GradPlacement::partial}};
  for (const auto& [tail, placement] : expected) {
    bool found = false;
    for (const auto& unit : spec.units)
      for (const auto& p : unit.params) {
        if (!p.name.ends_with(tail)) continue;
        found = true;
        EXPECT_EQ(p.placement(comm::Axis::tensor), placement) << p.name;
        for (const auto axis : {comm::Axis::replicate, comm::Axis::shard, comm::Axis::context})
          EXPECT_EQ(p.placement(axis), GradPlacement::partial) << p.name;
        EXPECT_EQ(p.placement(comm::Axis::pipeline),
                  tail == "embed_tokens.weight" ? GradPlacement::partial : GradPlacement::sharded)
            << "the table is tied";
      }
    EXPECT_TRUE(found) << tail;
  }
}

TEST(ModelConfig, ReadsWhichLayersHaveExperts) {
  auto config = base("qwen3_moe");
  config["num_hidden_layers"] = 5;
  config["decoder_sparse_step"] = 2;
  config["mlp_only_layers"] = {3, 70};
  config["norm_topk_prob"] = true;
  config["router_aux_loss_coef"] = 0.01;
  const auto qwen = ModelConfig::parse(config.dump(), "t");
  EXPECT_EQ(qwen.sparse, (std::vector<bool>{false, true, false, false, false}));
  EXPECT_TRUE(qwen.experts.normalise);
  EXPECT_EQ(qwen.experts.aux_loss_coef, 0.0) << "only if output_router_logits enables it";
  config["output_router_logits"] = true;
  EXPECT_EQ(ModelConfig::parse(config.dump(), "t").experts.aux_loss_coef, 0.01);
  const auto mixtral = ModelConfig::parse(base("mixtral").dump(), "t");
  EXPECT_EQ(mixtral.experts.intermediate_size, 40);
  EXPECT_TRUE(mixtral.is_sparse(0) && mixtral.is_sparse(1) && mixtral.windows == std::vector<std::int64_t>(2));
  EXPECT_EQ(ModelConfig::parse(base("qwen2_moe").dump(), "t").experts.shared_size, 32);
  config = base("qwen3_moe");
  config["num_experts_per_tok"] = 5;
  expect_refused(config, "num_experts_per_tok is 5, more than the 4 experts");
  config = base("qwen3_moe");
  config["mlp_only_layers"] = "all";
  expect_refused(config, "mlp_only_layers is \"all\"");
  config = base("mixtral");
  config["router_jitter_noise"] = 0.1;
  expect_refused(config, "router_jitter_noise 0.1");
}

TEST(Spec, ExpertsAreOneParameterOfManyTensors) {
  LoraConfig lora;
  lora.rank = 2;
  lora.alpha = 2;
  lora.set_targets("up_proj,down_proj");
  const auto config = ModelConfig::parse(base("qwen3_moe").dump(), "t");
  const auto find = [](const ModelSpec& spec, const std::string& tail) -> const ParamSpec& {
    for (const auto& p : spec.units[1].params)
      if (p.path == tail) return p;
    throw std::runtime_error(tail);
  };
  const auto modules = ModelSpec::build(config, Finetuning::adapter, lora);
  const ParamSpec& base_weight = find(modules, "mlp.experts.gate_up_proj");
  EXPECT_EQ(base_weight.shape, (Shape{4, 32, 24}));
  ASSERT_EQ(base_weight.in_files().size(), 8u);
  EXPECT_EQ(base_weight.in_files()[5].name, "model.layers.0.mlp.experts.2.up_proj.weight");
  EXPECT_EQ(base_weight.in_files()[5].shape, (Shape{16, 24}));
  const ParamSpec& a = find(modules, "mlp.experts.gate_up_proj.lora_A.weight");
  EXPECT_EQ(a.shape, (Shape{4, 2, 24})) << "only for up";
  EXPECT_EQ(a.in_files()[3].name, "base_model.model.model.layers.0.mlp.experts.3.up_proj.lora_A.weight");

  lora.targets = {"q_proj"};
  lora.target_parameters = {"mlp.experts.gate_up_proj", "experts.down_proj"};
  const auto fused = ModelSpec::build(config, Finetuning::adapter, lora);
  const ParamSpec& b = find(fused, "mlp.experts.gate_up_proj.lora_B.weight");
  EXPECT_TRUE(b.experts_last);
  EXPECT_EQ(b.shape, (Shape{4, 32, 2}));
  ASSERT_EQ(b.in_files().size(), 1u);
  EXPECT_EQ(b.in_files()[0].name, "base_model.model.model.layers.0.mlp.experts.base_layer.lora_B.weight");
  EXPECT_EQ(b.in_files()[0].shape, (Shape{32, 8}));
  EXPECT_EQ(find(fused, "mlp.experts.down_proj.lora_A.weight").in_files()[0].name,
            "base_model.model.model.layers.0.mlp.experts.lora_A.weight");
}

TEST(LoraConfig, AllMeansNoRouter) {
  LoraConfig lora;
  lora.set_targets("all");
  lora.keep_targets(lora_modules(ModelConfig::parse(base("qwen2_moe").dump(), "t")));
  EXPECT_EQ(lora.targets,
            (std::vector<std::string>{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}));
  lora.set_targets("all,gate");
  EXPECT_TRUE(lora.targets_module("gate") && !lora.targets_module("shared_expert_gate"));
}

TEST(LoraConfig, KeepsAnUnknownTargetForAnErrorThatListsThoseOfTheModel) {
  LoraConfig lora;
  lora.set_targets("q_proj,query");
  EXPECT_EQ(lora.targets, (std::vector<std::string>{"q_proj", "query"}));
  lora.rank = 16;
  lora.alpha = 32;
  EXPECT_DOUBLE_EQ(lora.scaling(), 2.0);
  lora.rslora = true;
  EXPECT_DOUBLE_EQ(lora.scaling(), 8.0);
}

}  // namespace
}  // namespace qft::model
