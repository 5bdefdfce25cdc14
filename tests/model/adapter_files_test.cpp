// Checks the table of adapter_config.json's keys, the explanations of an adapter's tensors, and the names that other model
// classes use.
#include "qft/model/adapter_config.h"
#include "qft/model/load.h"

#include <string>
#include <vector>

#include "io/temp_dir.h"
#include "model/tensor_files.h"
#include "tiny_config.h"
#include <gtest/gtest.h>

namespace qft::model {
namespace {

using nlohmann::json;
using test::contains;
using test::error_of;
using test::TempDir;
using test::write_bytes;

json plain_lora() {
  return {{"peft_type", "LORA"}, {"r", 4}, {"lora_alpha", 8}, {"target_modules", {"q_proj"}}};
}

AdapterConfig read_with(const TempDir& dir, const json& config) {
  write_bytes(dir / kAdapterConfigFile, config.dump());
  return read_adapter_config(dir.path());
}

AdapterConfig read_with(const TempDir& dir, json config, const json& changes) {
  config.update(changes);
  return read_with(dir, config);
}

std::string warning_of(const std::function<void()>& action) {
  testing::internal::CaptureStderr();
  action();
  return testing::internal::GetCapturedStderr();
}

TEST(AdapterKeys, OnesThatChangeTheComputationAreRefusedByName) {
  const TempDir dir;
  const std::pair<const char*, json> refused[] = {{"alora_invocation_tokens", {1, 520}},
                                                  {"use_bdlora", {{"nblocks", 2}}},
                                                  {"arrow_config", {{"top_k", 3}}},
                                                  {"kasa_config", {{"beta", 1e-4}}},
                                                  {"monteclora_config", {{"num_samples", 2}}},
                                                  {"trainable_token_indices", {1, 2}},
                                                  {"layers_to_transform", 0},
                                                  {"exclude_modules", "lm_head"},
                                                  {"layer_replication", {{0, 1}, {0, 1}}},
                                                  {"use_some_later_method", true},
                                                  {"some_later_config", {{"x", 1}}}};
  for (const auto& [key, value] : refused)
    EXPECT_TRUE(
        contains(error_of([&] { read_with(dir, plain_lora(), {{key, value}}); }), key + (" = " + value.dump()) + " is not"));
  for (const auto& [key, value] : refused)
    for (const json& nothing : {json(), json(""), json(false), json::array(), json::object()})
      EXPECT_EQ(read_with(dir, plain_lora(), {{key, nothing}}).lora.rank, 4) << key << nothing;
}

TEST(AdapterKeys, SettingsOfMethodsThatAreOffAreNotRead) {
  const TempDir dir;
  const json harmless = {{"peft_version", "0.21.2"},
                         {"qalora_group_size", 16},
                         {"runtime_config", {{"ephemeral_gpu_offload", true}}},
                         {"eva_config", {{"rho", 2.0}}},
                         {"corda_config", {{"corda_method", "ipm"}}},
                         {"loftq_config", {{"loftq_bits", 4}}},
                         {"lora_ga_config", {{"direction", "ArB2r"}}},
                         {"velora_config", {{"num_groups", 4}}},
                         {"megatron_config", {{"a", 1}}},
                         {"megatron_core", "megatron.core"},
                         {"layers_pattern", "layers"},
                         {"revision", "main"},
                         {"auto_mapping", {{"base_model_class", "LlamaForCausalLM"}}},
                         {"lorap_emb_lr", 1e-6},
                         {"bias", nullptr},
                         {"task_type", ""},
                         {"modules_to_save", ""},
                         {"init_lora_weights", ""},
                         {"lora_dropout", nullptr},
                         {"use_rslora", nullptr},
                         {"use_dora", ""},
                         {"rank_pattern", nullptr},
                         {"target_parameters", ""}};
  std::string said = warning_of([&] { EXPECT_EQ(read_with(dir, plain_lora(), harmless).lora.rank, 4); });
  EXPECT_EQ(said, "");
  said = warning_of([&] { EXPECT_EQ(read_with(dir, plain_lora(), {{"later_group_size", 16}}).lora.rank, 4); });
  EXPECT_TRUE(contains(said, "later_group_size = 16 is not known to qft"));
}

TEST(AdapterKeys, OfOftAreOthers) {
  const TempDir dir;
  const json oft = {{"peft_type", "OFT"},     {"r", 0},      {"oft_block_size", 4},   {"target_modules", {"q_proj"}},
                    {"peft_version", "0.18"}, {"eps", 6e-5}, {"module_dropout", 0.1}, {"init_weights", true}};
  EXPECT_EQ(read_with(dir, oft).oft.block_size, 4);
  EXPECT_TRUE(contains(error_of([&] { read_with(dir, oft, {{"coft", true}}); }), "coft = true is not implemented"));
  EXPECT_TRUE(contains(error_of([&] { read_with(dir, oft, {{"use_dora", true}}); }), "use_dora = true is not known to qft"));
}

/// Returns q_proj's factors for both layers of tiny_config's llama, with `prefix` instead of "model.".
std::vector<TestTensor> query_factors(const std::string& prefix = "model.") {
  std::vector<TestTensor> tensors;
  for (const std::string& layer : {std::string("0"), std::string("1")}) {
    const std::string module = "base_model.model." + prefix + "layers." + layer + ".self_attn.q_proj.";
    tensors.push_back({module + "lora_A.weight", {4, 24}});
    tensors.push_back({module + "lora_B.weight", {24, 4}});
  }
  return tensors;
}

ModelSpec spec_over(const AdapterConfig& adapter, const json& config = base("llama")) {
  return ModelSpec::build(ModelConfig::parse(config.dump(), "c"), Finetuning::adapter, adapter);
}

TEST(AdapterTensors, WhatBelongsToNoKeyIsListedWithItsMeaning) {
  const TempDir dir;
  const std::pair<TestTensor, const char*> others[] = {
      {{"base_model.model.model.embed_tokens.weight", {101, 24}}, "embeddings saved with the adapter"},
      {{"base_model.model.lm_head.base_layer.weight", {101, 24}}, "the head, saved with the adapter"},
      {{"base_model.model.model.layers.0.mlp.up_proj.lora_A.weight", {4, 24}},
       "belongs to a module that target_modules does not name"},
      {{"base_model.model.model.embed_tokens.lora_embedding_A", {4, 101}}, "LoRA on embeddings"},
      {{"base_model.model.model.visual.blocks.0.attn.qkv.lora_A.weight", {4, 24}}, "belongs to the vision tower"},
      {{"base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector", {24}},
       "DoRA's magnitudes; is use_dora missing"},
      {{"base_model.model.model.layers.0.self_attn.q_proj.base_layer.bias", {24}}, "a trained bias"},
      {{"base_model.model.model.layers.0.self_attn.q_proj.lora_velora_embed", {4}}, "VeLoRA, which is"},
      {{"base_model.model.model.norm.weight", {24}}, "saved in full, but no key"}};
  const ModelSpec spec = spec_over(read_with(dir, plain_lora()));
  for (const auto& [tensor, words] : others) {
    std::vector<TestTensor> tensors = query_factors();
    tensors.push_back(tensor);
    write_tensors(dir / kAdapterWeightsFile, tensors);
    const std::string error = error_of([&] { require_adapter(spec, dir.path()); });
    EXPECT_TRUE(contains(error, "'" + tensor.name + "' (" + words)) << error;
  }
  std::vector<TestTensor> tensors = query_factors();
  tensors.pop_back();
  write_tensors(dir / kAdapterWeightsFile, tensors);
  EXPECT_TRUE(contains(error_of([&] { require_adapter(spec, dir.path()); }),
                       "has no tensor 'base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight', which target_modules"));
  write_tensors(dir / kAdapterWeightsFile, query_factors());
  require_adapter(spec, dir.path());
}

json seeing_config() {
  json text = base("qwen3_5");
  text.update({{"head_dim", 8}, {"layer_types", {"full_attention", "full_attention"}}});
  return {{"model_type", "qwen3_5"}, {"text_config", text}};
}

std::vector<TestTensor> with_gates(std::vector<TestTensor> tensors) {
  for (TestTensor& tensor : tensors)
    if (tensor.shape[0] == 24) tensor.shape[0] = 48;  // a gate for each column of q
  return tensors;
}

TEST(AdapterNames, OfTheTextModelAndOfTheWholeAreBothRead) {
  const TempDir dir;
  json blind = seeing_config()["text_config"];
  blind["model_type"] = "qwen3_5_text";
  for (const json& model : {seeing_config(), blind})
    for (const std::string& prefix : {std::string("model."), std::string("model.language_model.")}) {
      write_tensors(dir / kAdapterWeightsFile, with_gates(query_factors(prefix)));
      std::string pattern = prefix + "layers.(0|1).self_attn.q_proj";
      for (const json& targets :
           {json(json::array({"q_proj"})), json(pattern),
            json(json::array({prefix + "layers.0.self_attn.q_proj", prefix + "layers.1.self_attn.q_proj"}))}) {
        const AdapterConfig adapter =
            read_with(dir, plain_lora(), {{"target_modules", targets}, {"rank_pattern", {{pattern, 4}}}});
        const ModelSpec spec = spec_over(adapter, model);
        require_adapter(spec, dir.path());
        EXPECT_EQ(adapter.targets().name_in_files("model.language_model.norm"), prefix + "norm") << "written as read";
      }
    }
}

TEST(AdapterTargets, OnesThatDoNotExistNameFileAndKey) {
  const TempDir dir;
  const std::string file = dir / kAdapterConfigFile;
  const auto refusal = [&](const json& targets) {
    return error_of([&] { spec_over(read_with(dir, plain_lora(), {{"target_modules", targets}})); });
  };
  for (const json& targets : {json(json::array({"c_attn"})), json(json::array({"w1"})), json("transformer\\.h\\..*")})
    EXPECT_TRUE(contains(refusal(targets), "'" + file + "': target_modules '")) << targets;
  const std::string said = warning_of([&] {
    const AdapterConfig some = read_with(dir, plain_lora(), {{"target_modules", {"c_attn", "q_proj", "w1"}}});
    EXPECT_GT(spec_over(some).num_params(true), 0);
  });
  EXPECT_TRUE(contains(said, file + "': target_modules contains c_attn, w1, which matches no linear module of this llama"));
  EXPECT_TRUE(contains(error_of([&] { spec_over(read_with(dir, plain_lora(), {{"modules_to_save", {"classifier2"}}})); }),
                       "'" + file + "': modules_to_save 'classifier2'"));
  EXPECT_EQ(warning_of([&] { spec_over(read_with(dir, plain_lora(), {{"target_modules", "all-linear"}})); }), "");
}

TEST(AdapterBase, AnotherSpellingIsNoOtherModel) {
  const TempDir dir;
  const std::filesystem::path model = dir / "models/Qwen2.5-0.5B-Instruct", other = dir / "other/Qwen2.5-0.5B-Instruct";
  for (const auto& folder : {model, other}) std::filesystem::create_directories(folder);
  write_tensors(model / "model.safetensors", {{"a", {4}, 1}});
  write_tensors(other / "model.safetensors", {{"a", {4}, 1}});
  const auto said = [&](const std::string& named, const std::filesystem::path& folder) {
    read_with(dir, plain_lora(), {{"base_model_name_or_path", named}});
    return warning_of([&] { warn_about_other_base(dir.path(), folder.string(), folder); });
  };
  const std::string cache = "/hub/models--Qwen--Qwen2.5-0.5B-Instruct/snapshots/4e2f";
  for (const std::string& named :
       {std::string(), model.string(), model.string() + "/", std::string("Qwen/Qwen2.5-0.5B-Instruct"), cache,
        std::string("qwen/qwen2.5-0.5b-instruct"), std::string("unsloth/Qwen2.5-0.5B-Instruct-bnb-4bit"),
        std::string("/cache/models/Qwen/Qwen2___5-0___5B-Instruct"), other.string()})
    EXPECT_EQ(said(named, model), "") << named;
  for (const std::string& named :
       {std::string("Qwen/Qwen2.5-1.5B-Instruct"), std::string("Qwen/Qwen2.5-0.5B"), std::string("/models/mine")})
    EXPECT_TRUE(contains(said(named, model), "was trained on '" + named + "'"));
  write_tensors(other / "model.safetensors", {{"a", {4}, 9}});
  EXPECT_TRUE(contains(said(other.string(), model), "was trained on '" + other.string() + "'")) << "same name, other weights";
}

}  // namespace
}  // namespace qft::model
