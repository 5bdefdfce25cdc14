// Unchecked configurations and adapters.
#include "qft/model/adapter_config.h"
#include "qft/model/config.h"
#include "qft/model/load.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

#include "io/temp_dir.h"
#include "test_paths.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace qft::model {

using nlohmann::json;
using test::contains;
using test::error_of;
using test::TempDir;
using test::write_bytes;

json config() {
  return {{"model_type", "llama"},  {"hidden_size", 8},         {"intermediate_size", 16},
          {"num_hidden_layers", 2}, {"num_attention_heads", 2}, {"vocab_size", 10}};
}
json adapter() {
  return {{"peft_type", "LORA"}, {"r", 4}, {"lora_alpha", 8}, {"target_modules", {"q_proj"}}};
}

TEST(AdapterConfig, AFolderThatIsNoneIsToldFromOneOfAnotherKind) {
  const TempDir dir;
  const auto error = [](const std::filesystem::path& path) {
    try {
      read_adapter_config(path);
    } catch (const ConfigError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_TRUE(contains(error(dir / "outt"), "adapter folder '" + (dir / "outt").string() + "' does not exist"));
  EXPECT_TRUE(error(dir.path()).ends_with("has no adapter_config.json: it is not an adapter"));
  write_bytes(dir / "config.json", config().dump());
  EXPECT_TRUE(contains(error(dir.path()), "it is not an adapter, but a whole model"));
}

TEST(ModelConfig, AFolderThatIsNoneIsAMistakeInTheSettings) {
  const TempDir dir;
  EXPECT_THROW(ModelConfig::load(dir / "nowhere"), ConfigError);
  EXPECT_TRUE(contains(error_of([&] { ModelConfig::load(dir / "nowhere"); }), "nowhere' does not exist"));
  EXPECT_TRUE(contains(error_of([&] { ModelConfig::load("owner-x/name"); }), "qft fetch owner-x/name"));
  EXPECT_THROW(ModelConfig::load(dir.path()), ConfigError);
}

// A pack-only mark that stays after the architecture is implemented would wrongly tell users that nothing can train with the
// template.
TEST(ModelConfig, TemplatesForPacksOnlyAreOfArchitecturesThatAreNotImplemented) {
  int marks = 0;
  for (const auto& entry : std::filesystem::directory_iterator(test::kSourceDir + "/configs/templates")) {
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) {
      constexpr std::string_view kKey = "pack_only: ";
      if (!line.starts_with(kKey)) continue;
      ++marks;
      json object = config();
      object["model_type"] = line.substr(kKey.size());
      EXPECT_TRUE(contains(error_of([&] { ModelConfig::parse(object.dump(), "c"); }), "is not implemented")) << entry.path();
    }
  }
  EXPECT_GE(marks, 1);
}

TEST(ModelConfig, SizesThatWouldOverflowAreRefusedWithTheirName) {
  EXPECT_EQ(ModelConfig::parse(config().dump(), "c").num_layers, 2);
  for (const char* key : {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "head_dim",
                          "num_key_value_heads", "vocab_size"})
    for (const json& value : {json(1LL << 39), json(-1), json(0), json(1.5), json("8"), json(18446744073709551615ULL)}) {
      json bad = config();
      bad[key] = value;
      const std::string error = error_of([&] { ModelConfig::parse(bad.dump(), "c"); });
      EXPECT_TRUE(contains(error, key)) << value;
    }
  json heads = config();
  heads["num_attention_heads"] = 1 << 15;
  heads["head_dim"] = 1 << 15;
  EXPECT_TRUE(contains(error_of([&] { ModelConfig::parse(heads.dump(), "c"); }), "32768 heads of size 32768"));
  json eos = config();
  eos["eos_token_id"] = {1, 1LL << 40};
  EXPECT_TRUE(contains(error_of([&] { ModelConfig::parse(eos.dump(), "c"); }), "eos_token_id holds 1099511627776"));
  EXPECT_TRUE(contains(error_of([&] { ModelConfig::parse(std::string(1 << 20, '['), "c"); }), "nested"));
}

TEST(AdapterConfig, WhatIsNoAdapterIsRefused) {
  const TempDir dir;
  const auto refusal = [&](const char* key, const json& value) {
    json bad = adapter();
    bad[key] = value;
    write_bytes(dir / kAdapterConfigFile, bad.dump());
    return error_of([&] { read_adapter_config(dir.path()); });
  };
  write_bytes(dir / kAdapterConfigFile, adapter().dump());
  EXPECT_EQ(read_adapter_config(dir.path()).lora.rank, 4);
  for (const json& rank : {json(0), json(-4), json(4.5), json("4"), json(1LL << 40), json()})
    EXPECT_TRUE(contains(refusal("r", rank), "r is " + rank.dump()));
  for (const char* start : {"pissa", "pissa_niter_4", "olora", "corda", "loftq"})
    EXPECT_TRUE(contains(refusal("init_lora_weights", start), "needs base weights other than the model's")) << start;
  json gaussian = adapter();
  gaussian["init_lora_weights"] = "gaussian";
  write_bytes(dir / kAdapterConfigFile, gaussian.dump());
  EXPECT_EQ(read_adapter_config(dir.path()).lora.rank, 4);
  EXPECT_TRUE(contains(refusal("lora_alpha", "x"), "type must be number"));
  EXPECT_TRUE(contains(refusal("target_modules", {1}), "type must be string"));
  EXPECT_TRUE(contains(refusal("lora_bias", true), "lora_bias = true is not implemented"));
  write_bytes(dir / kAdapterConfigFile, "[]");
  EXPECT_TRUE(contains(error_of([&] { read_adapter_config(dir.path()); }), "expected a JSON object"));
}

TEST(Adapter, ADamagedPickleIsRefused) {
  const TempDir dir;
  write_bytes(dir / kAdapterConfigFile, adapter().dump());
  const ModelSpec spec =
      ModelSpec::build(ModelConfig::parse(config().dump(), "c"), Finetuning::adapter, read_adapter_config(dir.path()));
  const auto load = [&] { return error_of([&] { load_adapter(spec, dir.path(), {}); }); };
  EXPECT_TRUE(contains(load(), "has no adapter_model.safetensors"));
  write_bytes(dir / "adapter_model.bin", "x");
  const std::string error = load();
  EXPECT_TRUE(contains(error, "adapter_model.bin': it has no zip end record"));
}

}  // namespace qft::model
