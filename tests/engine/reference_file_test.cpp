// Tests the file of a reference's log-probabilities: what it stores and which files are refused.
#include "qft/core/error.h"
#include "qft/engine/stored_reference.h"

#include <cmath>
#include <limits>
#include <string>

#include "io/temp_dir.h"
#include <gtest/gtest.h>

namespace qft::engine {
namespace {

using test::read_bytes;
using test::TempDir;
using test::write_bytes;

const ReferenceIdentity kIdentity{"0123", "4567", "none", "bfloat16", "none"};
const ReferenceSums kSums{2, {-1.5, -3.25, -0.1, 0.0}};

/// Returns the message of the error T that reading throws.
template <class T>
std::string refusal(const std::filesystem::path& path, const ReferenceIdentity& identity = kIdentity, std::int64_t items = 2,
                    std::int64_t sequences = 4) {
  const std::string before = read_bytes(path);
  try {
    read_reference(path, identity, items, sequences);
  } catch (const T& e) {
    EXPECT_EQ(read_bytes(path), before) << "the file is unchanged";
    return e.what();
  }
  ADD_FAILURE() << "it is taken";
  return {};
}

TEST(ReferenceFile, KeepsTheSumsToTheBit) {
  const TempDir dir;
  const auto path = reference_path(dir / "train.h5");
  EXPECT_EQ(path.filename(), "train.h5.reference");
  EXPECT_FALSE(read_reference(path, kIdentity, 2, 4)) << "no file yet";
  write_reference(path, kIdentity, kSums);
  const auto read = read_reference(path, kIdentity, 2, 4);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->items, 2);
  EXPECT_EQ(read->values, kSums.values);
  const ReferenceSums part{1, {-1.5, -3.25, 0.0, 0.0}};
  write_reference(path, kIdentity, part);
  EXPECT_EQ(read_reference(path, kIdentity, 2, 4)->items, 1) << "the rest must be computed";
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1) << "no unfinished file is left";
}

TEST(ReferenceFile, OfOthersIsRefusedWithBothValues) {
  const TempDir dir;
  const auto path = dir / "train.h5.reference";
  write_reference(path, kIdentity, kSums);
  const std::pair<const char*, std::string ReferenceIdentity::*> parts[] = {{"pack", &ReferenceIdentity::pack},
                                                                            {"model", &ReferenceIdentity::model},
                                                                            {"adapter", &ReferenceIdentity::adapter},
                                                                            {"compute", &ReferenceIdentity::compute},
                                                                            {"quantization", &ReferenceIdentity::quantization}};
  for (const auto& [name, part] : parts) {
    SCOPED_TRACE(name);
    ReferenceIdentity other = kIdentity;
    other.*part = "something else";
    const std::string told = refusal<ConfigError>(path, other);
    for (const std::string& words : {path.string(), "of another " + std::string(name), kIdentity.*part + " there",
                                     std::string("something else in this run"), std::string("remove the file")})
      EXPECT_NE(told.find(words), std::string::npos) << words << " in " << told;
  }
}

TEST(ReferenceFile, ThatIsDamagedIsNeverTrusted) {
  const TempDir dir;
  const auto path = dir / "train.h5.reference";
  write_reference(path, kIdentity, kSums);
  const std::string whole = read_bytes(path);
  const auto expect_refused = [&](const std::string& bytes, const std::string& why) {
    SCOPED_TRACE(why);
    write_bytes(path, bytes);
    const std::string told = refusal<Error>(path);
    EXPECT_NE(told.find("cannot be used"), std::string::npos) << told;
    EXPECT_NE(told.find("remove the file"), std::string::npos) << told;
  };
  for (const std::size_t kept : {std::size_t{0}, whole.size() / 2, whole.size() - 1})
    expect_refused(whole.substr(0, kept), "cut");
  expect_refused("no HDF5 file at all", "another file");
  const double value = kSums.values[1];
  const std::size_t at = whole.find(std::string(reinterpret_cast<const char*>(&value), sizeof value));
  ASSERT_NE(at, std::string::npos);
  std::string changed = whole;
  changed[at] = static_cast<char>(changed[at] ^ 1);
  expect_refused(changed, "a bit of a sum");
  write_bytes(path, whole);
  EXPECT_NE(refusal<Error>(path, kIdentity, 2, 6).find("4 values"), std::string::npos);
  EXPECT_NE(refusal<Error>(path, kIdentity, 1, 4).find("2 items"), std::string::npos);
}

TEST(ReferenceFile, IsNotWrittenWithWhatIsNoNumberOrWhereThereIsNoFolder) {
  const TempDir dir;
  ReferenceSums sums = kSums;
  sums.values[3] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(write_reference(dir / "train.h5.reference", kIdentity, sums), Error);
  EXPECT_FALSE(std::filesystem::exists(dir / "train.h5.reference"));
  EXPECT_THROW(write_reference(dir / "nowhere/train.h5.reference", kIdentity, kSums), Error);
}

TEST(ReferenceIdentityOf, FollowsWeightsConfigurationAndAdapterNotTheirFolders) {
  const TempDir dir;
  const auto model = [&](const char* name, const std::string& config, const std::string& weights) {
    std::filesystem::create_directories(dir / name);
    write_bytes(dir / name / "config.json", config);
    write_bytes(dir / name / "model.safetensors", weights);
  };
  const std::string config = R"({"model_type":"qwen2","hidden_size":64,"intermediate_size":128,"num_hidden_layers":6,)"
                             R"("num_attention_heads":4,"vocab_size":512,"max_position_embeddings":256})";
  model("a", config, "weights"), model("b", config, "weights"), model("c", config, "weight5");
  std::filesystem::create_directories(dir / "adapter");
  write_bytes(dir / "adapter/adapter_config.json", R"({"peft_type":"LORA","r":8,"lora_alpha":16,"target_modules":["q_proj"]})");
  const auto factors = [&](const std::string& text) {  // a file without tensors
    const std::string header = R"({"__metadata__":{"text":")" + text + R"("}})";
    write_bytes(dir / "adapter/adapter_model.safetensors",
                std::string(1, static_cast<char>(header.size())) + std::string(7, '\0') + header);
  };
  factors("factors");
  const auto of = [&](const char* name, const std::vector<std::string>& adapters = {}, const char* rope_scaling = "") {
    config::RunConfig config;
    config.model.rope_scaling = rope_scaling;
    config.model.model_name_or_path = (dir / name).string();
    config.model.adapter_name_or_path = adapters;
    config.model.infer_dtype = "float32";
    return identity_of(config, ModelSource::read(config, Use::inference), "0123");
  };
  const ReferenceIdentity a = of("a");
  EXPECT_EQ(a.pack, "0123");
  EXPECT_EQ(a.adapter, "none");
  EXPECT_EQ(a.compute, "float32");
  EXPECT_EQ(of("b").model, a.model);
  EXPECT_NE(of("c").model, a.model);
  EXPECT_NE(of("a", {}, "linear").model, a.model) << "with twice the positions";
  const ReferenceIdentity tuned = of("a", {(dir / "adapter").string()});
  EXPECT_EQ(tuned.model, a.model);
  factors("fact0rs");
  EXPECT_NE(of("a", {(dir / "adapter").string()}).adapter, tuned.adapter);
}

}  // namespace
}  // namespace qft::engine
