// Parameters of which a rank has only a box: reading or initialising them gives the same values as the box of the whole tensor.
#include "qft/io/model_files.h"
#include "qft/model/load.h"

#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "io/temp_dir.h"
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

namespace qft::model {
namespace {

constexpr const char* kConfig =
    R"({"model_type": "llama", "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2,
        "vocab_size": 10, "tie_word_embeddings": true})";

ModelSpec spec_with_lora() {
  LoraConfig lora;
  lora.rank = 3;
  lora.alpha = 6;
  lora.set_targets("all");
  return ModelSpec::build(ModelConfig::parse(kConfig, "test"), Finetuning::adapter, lora);
}

/// Cuts every other matrix by rows and the rest by columns; halves vectors.
ModelSpec cut(ModelSpec spec) {
  int n = 0;
  for (auto& unit : spec.units)
    for (auto& p : unit.params) {
      const std::size_t d = p.shape.size() == 2 && ++n % 2 == 0 ? 1 : 0;
      Box& box = p.boxes.front();
      box.extent[d] = (p.shape[d] + 1) / 2;
      box.start[d] = p.shape[d] - box.extent[d];
      p.local_shape = box.extent;
      p.numel = static_cast<std::int64_t>(box.elements());
    }
  return spec;
}

void save(const ModelSpec& spec, const std::filesystem::path& dir) {
  std::vector<io::TensorSpec> specs;
  for (const auto& unit : spec.units)
    for (const auto& p : unit.params)
      if (p.role == Role::base) specs.push_back({p.name, DType::f32, p.shape});
  io::SafetensorsWriter writer(io::posix_storage(), dir / "model.safetensors", specs);
  double first = 0;
  for (const auto& s : specs) {
    const double end = first + static_cast<double>(s.elements());
    const at::Tensor values = at::arange(first, end, at::kFloat);
    writer.append(values.data_ptr(), values.nbytes());
    first = end;
  }
  writer.finish();
}

/// The access for a rank that holds these elements of each box.
class Shards {
 public:
  explicit Shards(double from, double to) : from_(from), to_(to) {}
  ParamAccess access() {
    return [this](int, const ParamSpec& p) {
      const auto begin = static_cast<std::int64_t>(from_ * static_cast<double>(p.numel)),
                 end = static_cast<std::int64_t>(to_ * static_cast<double>(p.numel));
      return shards_.emplace(p.name, Shard{at::empty({end - begin}, at::kDouble), begin}).first->second;
    };
  }
  const Shard& of(const ParamSpec& p) const { return shards_.at(p.name); }

 private:
  double from_, to_;
  std::map<std::string, Shard> shards_;
};

/// Returns the same elements of the whole tensor's box.
at::Tensor expected(const ParamSpec& p, const Shard& part, const at::Tensor& whole) {
  at::Tensor box = whole.view(p.shape);
  for (std::size_t d = 0; d < p.shape.size(); ++d)
    box = box.narrow(static_cast<std::int64_t>(d), p.boxes.front().start[d], p.boxes.front().extent[d]);
  return box.reshape({-1}).slice(0, part.begin, part.end());
}

TEST(Boxes, AreReadAndInitialisedAsPartsOfTheWhole) {
  const test::TempDir dir;
  const ModelSpec whole_spec = spec_with_lora(), spec = cut(whole_spec);
  save(whole_spec, dir.path());
  const auto files = io::ModelFiles::open(dir.path());
  for (const auto& [from, to] : {std::pair{0.0, 1.0}, {0.3, 0.7}, {0.9, 1.0}}) {
    Shards whole(0, 1), parts(from, to);
    load_base_weights(whole_spec, files, whole.access());
    load_base_weights(spec, files, parts.access());
    init_adapter(whole_spec, 7, whole.access());
    init_adapter(spec, 7, parts.access());
    for (const auto& unit : spec.units)
      for (const auto& p : unit.params) {
        SCOPED_TRACE(p.name);
        const Shard& part = parts.of(p);
        EXPECT_TRUE(part.values.equal(expected(p, part, whole.of(p).values))) << p.name << " " << p.boxes.front().describe();
      }
  }
}

TEST(ValueHead, HasTheSameInitialValuesInAnyPart) {
  const ModelSpec lora = spec_with_lora();
  const ModelSpec spec = ModelSpec::build(lora.config, Finetuning::full, {}, WeightStorage::in({}), Head::value);
  const double bound = 1.0 / std::sqrt(static_cast<double>(spec.config.hidden_size));
  Shards whole(0, 1), part(0.3, 0.8), other(0, 1);
  init_value_head(spec, 7, whole.access());
  init_value_head(spec, 7, part.access());
  init_value_head(spec, 8, other.access());
  for (const auto& p : spec.units.back().params) {
    if (p.role != Role::value_head) continue;
    const at::Tensor all = whole.of(p).values;
    EXPECT_TRUE(part.of(p).values.equal(expected(p, part.of(p), all))) << p.name;
    EXPECT_LE(all.abs().max().item<double>(), bound);
    EXPECT_FALSE(all.equal(other.of(p).values)) << p.name;
  }
}

TEST(ValueHead, OfAClassifierStartsNormal) {
  const ModelSpec lora = spec_with_lora();
  const ModelSpec spec = ModelSpec::build(lora.config, Finetuning::full, {}, WeightStorage::in({}), Head::classifier(400));
  Shards whole(0, 1), part(0.3, 0.8);
  init_value_head(spec, 7, whole.access());
  init_value_head(spec, 7, part.access());
  const auto& p = spec.units.back().params.back();
  const at::Tensor all = whole.of(p).values.to(at::kDouble);
  EXPECT_TRUE(part.of(p).values.equal(expected(p, part.of(p), whole.of(p).values)));
  const double n = static_cast<double>(all.numel()), deviation = spec.config.initializer_range;
  EXPECT_NEAR(all.mean().item<double>(), 0.0, 5.0 * deviation / std::sqrt(n));
  EXPECT_NEAR(all.std().item<double>(), deviation, 5.0 * deviation / std::sqrt(2.0 * n));
  EXPECT_GT(all.abs().max().item<double>(), 2.5 * deviation);
}

TEST(Boxes, OfAFusedProjectionAreBoundInTheirOwnShape) {
  ModelSpec spec = spec_with_lora();
  // Lays out half of each linear's outputs in the layer anew, with the matching rows of LoRA's B.
  std::int64_t ends[2] = {0, 0};
  for (auto& p : spec.units[1].params) {
    if (p.role != Role::lora_a && p.shape.size() == 2) p.boxes.front().extent[0] /= 2;
    p.local_shape = p.boxes.front().extent;
    p.numel = static_cast<std::int64_t>(elements(p.boxes));
    p.offset = ends[p.trainable];
    ends[p.trainable] += p.numel;
  }
  const UnitBuffers buffers{at::arange(static_cast<double>(ends[0])), at::arange(static_cast<double>(ends[1])), {}, 1};
  const LayerWeights layer = bind_layer(spec, spec.units[1], buffers);
  const ops::LinearWeights& qkv = layer[0].linears[0].weights;
  EXPECT_EQ(qkv.weight.sizes(), (std::vector<std::int64_t>{12, 8}));
  ASSERT_EQ(qkv.lora.size(), 3U);
  EXPECT_EQ(qkv.lora[1].b.sizes(), (std::vector<std::int64_t>{4, 3}));
  EXPECT_EQ(qkv.lora[1].row0, 4);
  EXPECT_EQ(qkv.lora[1].rows, 4);
}

}  // namespace
}  // namespace qft::model
