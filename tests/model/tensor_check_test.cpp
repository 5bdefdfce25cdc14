// Errors for a model's files that lack tensors or have unexpected ones.
#include "model/tensor_check.h"

#include "qft/io/model_files.h"
#include "qft/model/config.h"
#include "qft/model/spec.h"

#include <string>

#include "io/temp_dir.h"
#include "model/tensor_files.h"
#include "tiny_config.h"
#include <gtest/gtest.h>

namespace qft::model {
namespace {

using nlohmann::json;
using test::contains;
using test::TempDir;
using test::write_bytes;

/// A tiny llama in a folder: all tensors of its parameters except one, and `more`.
struct Files {
  TempDir dir;
  ModelSpec spec;

  explicit Files(bool tied, const std::string& without = "", const std::vector<TestTensor>& more = {}) {
    json config = base("llama");
    config["tie_word_embeddings"] = tied;
    write_bytes(dir / "config.json", config.dump());
    spec = ModelSpec::build(ModelConfig::parse(config.dump(), "config.json"), Finetuning::full, {});
    std::vector<TestTensor> tensors = more;
    for (const UnitSpec& unit : spec.units)
      for (const ParamSpec& param : unit.params)
        if (param.name != without) tensors.push_back({param.name, param.shape});
    write_tensors(dir / "model.safetensors", tensors);
  }
  void check() const { require_tensors(spec, io::ModelFiles::open(dir.path()), nullptr); }
  std::string fault() const {
    try {
      check();
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  }
  std::string warning() const {
    testing::internal::CaptureStderr();
    check();
    return testing::internal::GetCapturedStderr();
  }
};

TEST(TensorCheck, AMissingHeadNamesTheKeyThatTiesIt) {
  EXPECT_EQ(Files(false).fault(), "");
  const std::string head = Files(false, kLmHead).fault();
  EXPECT_TRUE(contains(head, kLmHead) && contains(head, "tie_word_embeddings is not true")) << head;
  const std::string table = Files(true, "model.embed_tokens.weight", {{kLmHead, {101, 24}}}).fault();
  EXPECT_TRUE(contains(table, "model.embed_tokens.weight") && contains(table, "tie_word_embeddings")) << table;
  const std::string norm = Files(false, "model.norm.weight").fault();
  EXPECT_TRUE(contains(norm, "model.norm.weight") && !contains(norm, "tie_word_embeddings")) << norm;
}

TEST(TensorCheck, FrequenciesInFilesAreComparedWithTheConfiguration) {
  constexpr const char* kName = "model.layers.0.self_attn.rotary_emb.inv_freq";
  const Files other(true, "", {{kName, {4}, 5.0F}});
  const std::string said = other.warning();
  EXPECT_TRUE(contains(said, kName) && contains(said, "rope_theta")) << said;
  // config.json's own frequencies, in a separate shard.
  const Files same(true);
  const std::vector<double> ours = same.spec.config.inverse_frequencies();
  const std::vector<float> values(ours.begin(), ours.end());
  io::SafetensorsWriter writer(io::posix_storage(), same.dir / "frequencies.safetensors", {{kName, DType::f32, {4}}});
  writer.append(values.data(), values.size() * sizeof(float));
  writer.finish();
  json shards = {{kName, "frequencies.safetensors"}};
  for (const std::string& name : io::ModelFiles::open(same.dir.path()).names()) shards[name] = "one.safetensors";
  std::filesystem::rename(same.dir / "model.safetensors", same.dir / "one.safetensors");
  write_bytes(same.dir / "model.safetensors.index.json", json{{"weight_map", shards}}.dump());
  EXPECT_EQ(same.warning(), "");
}

TEST(TensorCheck, TensorsOfNoParameterAreAnError) {
  const std::string fault = Files(true, "", {{"vision.patch.weight", {3}}, {"vision.norm.weight", {3}}}).fault();
  EXPECT_TRUE(contains(fault, "2 tensors") && contains(fault, "vision.norm.weight") && contains(fault, "model_type")) << fault;
}

}  // namespace
}  // namespace qft::model
