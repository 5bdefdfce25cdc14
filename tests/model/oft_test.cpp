#include "qft/core/error.h"
#include "qft/model/adapter_config.h"
#include "qft/model/spec.h"

#include <fstream>

#include "io/temp_dir.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace qft::model {
namespace {

using nlohmann::json;
using test::contains;
using test::error_of;

ModelSpec spec_of(const OftConfig& oft, const std::string& type = "llama") {
  const std::string text =
      R"({"model_type":")" + type +
      R"(","hidden_size":24,"intermediate_size":40,"num_hidden_layers":2,"num_attention_heads":3,"num_key_value_heads":1,
      "head_dim":8,"vocab_size":20,"tie_word_embeddings":true,"num_experts":4,"num_experts_per_tok":2,"moe_intermediate_size":16,
      "decoder_sparse_step":1,"norm_topk_prob":true})";
  return ModelSpec::build(ModelConfig::parse(text, "test"), Finetuning::adapter, oft);
}

OftConfig oft_of(const std::string& targets, std::int64_t block = 8) {
  OftConfig oft;
  oft.block_size = block;
  oft.set_targets(targets);
  return oft;
}

TEST(OftConfig, BlocksAreTheNearestThatDivideTheInputs) {
  const auto block = [](std::int64_t rank, std::int64_t size, std::int64_t inputs) {
    OftConfig oft;
    oft.rank = rank;
    oft.block_size = size;
    return oft.block_of(inputs);
  };
  // Results of PEFT's adjust_oft_parameters.
  EXPECT_EQ(block(0, 32, 4096), 32);
  EXPECT_EQ(block(0, 32, 88), 22);
  EXPECT_EQ(block(0, 7, 40), 8);
  EXPECT_EQ(block(0, 9, 40), 8);  // 8 and 10 are equally near: the lower one
  EXPECT_EQ(block(0, 64, 40), 40);
  EXPECT_EQ(block(8, 0, 4096), 512);
  EXPECT_EQ(block(7, 0, 40), 5);
}

TEST(Oft, HasARotationOfEachWrappedLinear) {
  OftConfig oft = oft_of("q_proj,down_proj");
  for (const bool shared : {false, true}) {
    oft.shared = shared;
    const ModelSpec spec = spec_of(oft);
    std::vector<std::string> names;
    for (const ParamSpec& p : spec.units[1].params) {
      if (p.role != Role::rotation) continue;
      names.push_back(p.name);
      const std::int64_t blocks = shared ? 1 : p.name.find("down") != std::string::npos ? 5 : 3;
      EXPECT_EQ(p.shape, (Shape{blocks, 28}));
      EXPECT_EQ(p.derived_numel, blocks * 64);
      EXPECT_TRUE(p.trainable && p.weight_decay);
    }
    EXPECT_EQ(names, (std::vector<std::string>{"base_model.model.model.layers.0.self_attn.q_proj.oft_R.weight",
                                               "base_model.model.model.layers.0.mlp.down_proj.oft_R.weight"}));
    EXPECT_EQ(spec.units[1].derived_numel, (shared ? 2 : 8) * 64);
  }
}

TEST(Oft, RefusesExpertsAndBlocksOfOne) {
  EXPECT_TRUE(contains(error_of([] { spec_of(oft_of("all"), "qwen3_moe"); }), "is not available for the linears of experts"));
  EXPECT_NO_THROW(spec_of(oft_of("q_proj,gate"), "qwen3_moe"));
  EXPECT_TRUE(contains(error_of([] { spec_of(oft_of("q_proj", 1)); }), "nothing to rotate"));
  EXPECT_TRUE(contains(error_of([] { spec_of(oft_of(R"(.*layers\.9\..*q_proj)")).require_adapter_targets(); }),
                       "oft_target '.*layers\\.9\\..*q_proj' matches no linear"));
}

TEST(OftConfig, ReadsBackAsItIsWritten) {
  const test::TempDir dir;
  OftConfig oft = oft_of("q_proj,v_proj");
  oft.shared = true;
  oft.neumann = false;
  oft.terms = 7;
  oft.modules_to_save = {"norm"};
  std::ofstream(dir.path() / kAdapterConfigFile) << adapter_config_json(oft, "m");
  const AdapterConfig again = read_adapter_config(dir.path());
  EXPECT_FALSE(again.lora.enabled());
  EXPECT_EQ(again.oft.describe(), oft.describe());
  EXPECT_EQ(again.oft.modules_to_save, oft.modules_to_save);
  EXPECT_EQ(again.oft.terms, 7);
}

TEST(OftConfig, WhatIsNotImplementedIsRefusedByName) {
  const test::TempDir dir;
  const auto read = [&](const char* key, const json& value) {
    json config = json::parse(adapter_config_json(oft_of("q_proj"), "m"));
    config[key] = value;
    std::ofstream(dir.path() / kAdapterConfigFile) << config.dump();
    read_adapter_config(dir.path());
  };
  const auto refusal = [&](const char* key, const json& value) { return error_of([&] { read(key, value); }); };
  EXPECT_NO_THROW(read("module_dropout", 0.5));  // PEFT ignores it
  EXPECT_TRUE(contains(refusal("coft", true), "coft = true is not implemented"));
  EXPECT_TRUE(contains(refusal("r", 4), "r is 4 and oft_block_size is 8"));
  EXPECT_TRUE(contains(refusal("oft_block_size", -1), "oft_block_size is -1"));
  EXPECT_TRUE(contains(refusal("bias", "all"), "bias 'all' is not implemented"));
  EXPECT_TRUE(contains(refusal("peft_version", "0.17.1"), "trained with a different series"));
  EXPECT_TRUE(contains(refusal("peft_version", nullptr), "trained with a different series"));
  EXPECT_NO_THROW(read("peft_version", "0.19.0.dev0"));
}

}  // namespace
}  // namespace qft::model
