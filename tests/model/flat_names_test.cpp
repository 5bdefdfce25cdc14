// Embedding models: files without the prefix "model.", and without lm_head.
#include "qft/io/model_files.h"
#include "qft/model/config.h"
#include "qft/model/load.h"
#include "qft/model/spec.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "io/temp_dir.h"
#include "model/tensor_check.h"
#include "model/tensor_files.h"
#include "tiny_config.h"
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

namespace qft::model {
namespace {

using nlohmann::json;
using test::contains;
using test::error_of;
using test::TempDir;
using test::write_bytes;

constexpr std::string_view kPrefix = "model.";

/// Writes a tiny model that unties its head, as Qwen3-Embedding-8B is stored.
void write_flat(const TempDir& dir, const std::vector<TestTensor>& more = {}) {
  json config = base("llama");
  config["tie_word_embeddings"] = false;
  write_bytes(dir / "config.json", config.dump());
  const ModelConfig usual = ModelConfig::parse(config.dump(), "config.json");
  const ModelSpec spec = ModelSpec::build(usual, Finetuning::full, {}, {}, Head::vector(usual.hidden_size));
  std::vector<TestTensor> tensors = more;
  for (const UnitSpec& unit : spec.units)
    for (const ParamSpec& param : unit.params) {
      ASSERT_TRUE(param.name.starts_with(kPrefix)) << param.name;
      tensors.push_back({param.name.substr(kPrefix.size()), param.shape, static_cast<float>(tensors.size())});
    }
  write_tensors(dir / "model.safetensors", tensors);
}

ModelSpec spec_of(const ModelConfig& config, Head head) {
  return ModelSpec::build(config, Finetuning::full, {}, {}, head);
}

TEST(FlatNames, AreFoundAndKept) {
  const TempDir dir;
  write_flat(dir);
  const ModelConfig config = ModelConfig::load(dir.path());
  EXPECT_EQ(config.text_prefix, "");
  const ModelSpec spec = spec_of(config, Head::vector(config.hidden_size));
  const io::ModelFiles files = io::ModelFiles::open(dir.path());
  require_base_weights(spec, files);
  std::map<std::string, at::Tensor> loaded;
  load_base_weights(spec, files, [&](int, const ParamSpec& param) {
    return Shard{loaded.try_emplace(param.name, at::full({param.numel}, -1.0F)).first->second, 0};
  });
  std::vector<std::string> names;
  for (const auto& [name, values] : loaded) {
    names.push_back(name);
    EXPECT_GE(values.min().item<float>(), 0.0F) << name;
  }
  std::vector<std::string> stored = files.names();
  std::ranges::sort(stored);
  EXPECT_EQ(names, stored);  // a saved model has the parameters' names
}

TEST(FlatNames, NeedNoHeadForVectorsOnly) {
  const TempDir dir;
  write_flat(dir);
  const ModelConfig config = ModelConfig::load(dir.path());
  const io::ModelFiles files = io::ModelFiles::open(dir.path());
  for (const Head& head : {Head::language_model, Head::token_difference(3, 4)})
    EXPECT_TRUE(contains(error_of([&] { require_base_weights(spec_of(config, head), files); }), kLmHead));
}

TEST(VectorHead, LeavesAHeadInTheFilesAsItIs) {
  const TempDir dir;
  write_flat(dir, {{kLmHead, {101, 24}}});
  const ModelConfig config = ModelConfig::load(dir.path());
  const ModelSpec spec = spec_of(config, Head::vector(config.hidden_size));
  require_base_weights(spec, io::ModelFiles::open(dir.path()));
  EXPECT_TRUE(spec.keeps(kLmHead));
  EXPECT_EQ(spec.units.back().params.size(), 1U);  // the final norm
  EXPECT_EQ(spec_of(config, Head::token_difference(3, 4)).units.back().params.back().name, kLmHead);
}

TEST(FlatNames, OfLinearsGetThePrefixInAdapters) {
  AdapterTargets targets;
  targets.text_prefix = kPrefix;
  EXPECT_EQ(targets.name_in_files("layers.0.self_attn.q_proj"), "model.layers.0.self_attn.q_proj");
  EXPECT_EQ(targets.name_in_files("model.layers.0.self_attn.q_proj"), "model.layers.0.self_attn.q_proj");
  EXPECT_EQ(targets.name_in_files("lm_head"), "lm_head");
}

}  // namespace
}  // namespace qft::model
