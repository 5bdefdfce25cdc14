// Quantised weights that tensor ranks share: the numbers of each rank's boxes are those of the whole tensor, whichever format the
// files have.
#include "qft/io/model_files.h"
#include "qft/model/load.h"
#include "qft/ops/dynamic_map.h"
#include "qft/ops/quantized.h"
#include "qft/ops/quantized_tables.h"

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "io/temp_dir.h"
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace qft::model {
namespace {

using ops::QuantFormat;

nlohmann::json config_with(const nlohmann::json& quantization) {
  nlohmann::json config = {{"model_type", "llama"},      {"hidden_size", 256},       {"intermediate_size", 320},
                           {"num_hidden_layers", 1},     {"num_attention_heads", 4}, {"vocab_size", 10},
                           {"tie_word_embeddings", true}};
  if (!quantization.is_null()) config["quantization_config"] = quantization;
  return config;
}

/// The tensors of a file.
class Tensors {
 public:
  void add(const std::string& name, DType type, const Shape& shape, const at::Tensor& values) {
    specs_.push_back({name, type, shape});
    values_.push_back(values.contiguous());
    ASSERT_EQ(values_.back().nbytes(), specs_.back().bytes()) << name;
  }
  void write(const std::filesystem::path& dir) const {
    io::SafetensorsWriter writer(io::posix_storage(), dir / "model.safetensors", specs_);
    for (const at::Tensor& values : values_) writer.append(values.data_ptr(), values.nbytes());
    writer.finish();
  }

 private:
  std::vector<io::TensorSpec> specs_;
  std::vector<at::Tensor> values_;
};

/// Adds a linear's weight [out, in], called NAME.weight.
using AddLinear = void (*)(Tensors& tensors, const std::string& name, std::int64_t out, std::int64_t in);

at::Tensor words(std::int64_t rows, std::int64_t columns) {
  return at::randint(-(std::int64_t{1} << 31), std::int64_t{1} << 31, {rows, columns}, at::kLong).to(at::kInt);
}

void add_plain(Tensors& tensors, const std::string& name, std::int64_t out, std::int64_t in) {
  tensors.add(name + ".weight", DType::f32, {out, in}, at::randn({out, in}));
}

void add_fp8(Tensors& tensors, const std::string& name, std::int64_t out, std::int64_t in) {
  const Shape tiles{(out + 127) / 128, (in + 127) / 128};
  tensors.add(name + ".weight", DType::u8, {out, in}, at::randint(0, 127, {out, in}, at::kByte));
  tensors.add(name + ".weight_scale_inv", DType::f32, tiles, at::rand(tiles) + 0.5);
}

constexpr std::int64_t kGroup = 64;

void add_gptq(Tensors& tensors, const std::string& name, std::int64_t out, std::int64_t in) {
  tensors.add(name + ".qweight", DType::i32, {in / 8, out}, words(in / 8, out));
  tensors.add(name + ".qzeros", DType::i32, {in / kGroup, out / 8}, words(in / kGroup, out / 8));
  tensors.add(name + ".scales", DType::f16, {in / kGroup, out}, (at::rand({in / kGroup, out}) + 0.5).to(at::kHalf));
}

void add_ordered(Tensors& tensors, const std::string& name, std::int64_t out, std::int64_t in) {
  add_gptq(tensors, name, out, in);
  tensors.add(name + ".g_idx", DType::i32, {in}, at::randperm(in).div(kGroup, "floor").to(at::kInt));
}

void add_awq(Tensors& tensors, const std::string& name, std::int64_t out, std::int64_t in) {
  tensors.add(name + ".qweight", DType::i32, {in, out / 8}, words(in, out / 8));
  tensors.add(name + ".qzeros", DType::i32, {in / kGroup, out / 8}, words(in / kGroup, out / 8));
  tensors.add(name + ".scales", DType::f16, {in / kGroup, out}, (at::rand({in / kGroup, out}) + 0.5).to(at::kHalf));
}

void add_int8(Tensors& tensors, const std::string& name, std::int64_t out, std::int64_t in) {
  tensors.add(name + ".weight", DType::i8, {out, in}, at::randint(-127, 128, {out, in}, at::kChar));
  tensors.add(name + ".SCB", DType::f32, {out}, at::rand({out}) + 0.5);
}

template <std::size_t N>
at::Tensor table(const std::array<float, N>& values) {
  return at::from_blob(const_cast<float*>(values.data()), {static_cast<std::int64_t>(N)}, at::kFloat).clone();
}

/// nf4 with double quantisation, as bitsandbytes writes it.
void add_nested(Tensors& tensors, const std::string& name, std::int64_t out, std::int64_t in) {
  const auto layout = ops::QuantizedLayout::of({QuantFormat::nf4, true}, out, in);
  const at::Tensor bytes = at::empty({layout.bytes}, at::kByte);
  ops::quantize(at::randn({out, in}), layout, bytes);
  const std::int64_t blocks = layout.blocks(), nested = (blocks + ops::kNestedBlock - 1) / ops::kNestedBlock;
  const at::Tensor scales = bytes.narrow(0, layout.nested_scales, 4 * (nested + 1)).view(at::kFloat);
  const std::string weight = name + ".weight";
  const std::string state = nlohmann::json{{"quant_type", "nf4"},
                                           {"blocksize", 64},
                                           {"dtype", "float16"},
                                           {"shape", {out, in}},
                                           {"nested_blocksize", 256},
                                           {"nested_dtype", "float32"},
                                           {"nested_offset", scales[nested].item<double>()}}
                                .dump();
  tensors.add(weight, DType::u8, {layout.code_bytes(), 1}, bytes.narrow(0, 0, layout.code_bytes()));
  tensors.add(weight + ".absmax", DType::u8, {blocks}, bytes.narrow(0, layout.scales, blocks));
  tensors.add(weight + ".quant_map", DType::f32, {16}, table(ops::four_bit_values(QuantFormat::nf4)));
  tensors.add(weight + ".nested_absmax", DType::f32, {nested}, scales.narrow(0, 0, nested));
  tensors.add(weight + ".nested_quant_map", DType::f32, {256}, table(ops::dynamic_map(true)));
  tensors.add(weight + ".quant_state.bitsandbytes__nf4", DType::u8, {std::ssize(state)},
              at::from_blob(const_cast<char*>(state.data()), {std::ssize(state)}, at::kByte).clone());
}

/// Writes a model whose linears `add` makes.
void write_model(const ModelSpec& spec, AddLinear add, const std::filesystem::path& dir) {
  Tensors tensors;
  for (const UnitSpec& unit : spec.units)
    for (const ParamSpec& p : unit.params)
      if (p.name.ends_with("_proj.weight"))
        add(tensors, p.name.substr(0, p.name.rfind('.')), p.shape[0], p.shape[1]);
      else
        tensors.add(p.name, DType::f32, p.shape, at::randn(p.shape));
  tensors.write(dir);
}

at::Tensor loaded(const ModelSpec& spec, const io::ModelFiles& files) {
  const UnitSpec& unit = spec.units[1];
  const at::Tensor packed = at::zeros({unit.packed_bytes}, at::kByte), decoded = at::empty({unit.quantized_numel}, at::kFloat);
  const auto comm = comm::make_self_communicator();
  load_quantized_weights(spec, files, [&](int) { return Shard{packed, 0}; }, *comm);
  decode(unit, packed, decoded);
  return decoded;
}

/// Returns the values of a rank's boxes, cut from the whole tensor's.
at::Tensor in_boxes(const ParamSpec& p, const at::Tensor& whole) {
  std::vector<at::Tensor> values;
  for (const Box& box : p.boxes)
    values.push_back(
        whole.view(p.shape).narrow(0, box.start[0], box.extent[0]).narrow(1, box.start[1], box.extent[1]).reshape({-1}));
  return at::cat(values);
}

struct QuantizedCase {
  const char* name;
  nlohmann::json config;   ///< quantization_config of the files; null: plain files
  ops::Quantization kind;  ///< of plain files' linears in memory
  AddLinear add = &add_plain;
  std::string refusal = {};  ///< of two tensor ranks
};

std::vector<QuantizedCase> quantized_cases() {
  const nlohmann::json gptq = {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", kGroup}, {"desc_act", false}};
  nlohmann::json ordered = gptq;
  ordered["desc_act"] = true;
  return {{"nf4", {}, {QuantFormat::nf4}},
          {"nf4 nested", {}, {QuantFormat::nf4, true}},
          {"fp4", {}, {QuantFormat::fp4}},
          {"int8", {}, {QuantFormat::int8}},
          {"fp8", {}, {QuantFormat::fp8}},
          {"stored fp8", {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}}, {}, &add_fp8},
          {"stored gptq", gptq, {}, &add_gptq},
          {"stored gptq in act order", ordered, {}, &add_ordered, "act order"},
          {"stored awq", {{"quant_method", "awq"}, {"bits", 4}, {"group_size", kGroup}}, {}, &add_awq},
          {"stored int8", {{"quant_method", "bitsandbytes"}, {"load_in_8bit", true}}, {}, &add_int8},
          {"stored nf4 nested",
           {{"quant_method", "bitsandbytes"},
            {"load_in_4bit", true},
            {"bnb_4bit_quant_type", "nf4"},
            {"bnb_4bit_use_double_quant", true}},
           {},
           &add_nested}};
}

TEST(QuantizedBoxes, HoldTheNumbersOfTheWholeTensor) {
  at::manual_seed(11);
  for (const QuantizedCase& c : quantized_cases()) {
    SCOPED_TRACE(c.name);
    const test::TempDir dir;
    const ModelConfig config = ModelConfig::parse(config_with(c.config).dump(), "test");
    write_model(ModelSpec::build(ModelConfig::parse(config_with({}).dump(), "test"), Finetuning::full, {}), c.add, dir.path());
    const auto files = io::ModelFiles::open(dir.path());
    const WeightStorage storage = config.stored ? weight_storage_of(*config.stored, &files) : WeightStorage::in(c.kind);
    const auto spec_of = [&](Share share) {
      return ModelSpec::build(config, Finetuning::full, {}, storage, Head::language_model, {}, share);
    };
    const ModelSpec whole = spec_of({});
    const at::Tensor all = loaded(whole, files);
    if (!c.refusal.empty()) {
      EXPECT_TRUE(test::contains(test::error_of([&] { spec_of({0, 2}); }), c.refusal))
          << test::error_of([&] { spec_of({0, 2}); });
      continue;
    }
    for (int n = 2; n <= 4; ++n)
      for (int r = 0; r < n; ++r) {
        const ModelSpec spec = spec_of({r, n});
        const at::Tensor mine = loaded(spec, files);
        int parts = 0;
        for (std::size_t i = 0; i < spec.units[1].params.size(); ++i) {
          const ParamSpec &p = spec.units[1].params[i], &q = whole.units[1].params[i];
          if (!p.is_quantized()) continue;
          parts += p.is_whole() ? 0 : 1;
          EXPECT_TRUE(mine.narrow(0, p.offset, p.numel).equal(in_boxes(p, all.narrow(0, q.offset, q.numel))))
              << p.name << " " << r << " of " << n << ", " << p.boxes.front().describe();
        }
        EXPECT_EQ(parts, 7);
      }
  }
}

/// Smaller groups in a part would need more scales.
TEST(QuantizedBoxes, KeepTilesAndGroupsWholeIfEachRankGetsSeveral) {
  nlohmann::json json = config_with({});
  json["intermediate_size"] = 2048;
  const ModelConfig config = ModelConfig::parse(json.dump(), "test");
  const ops::Quantization groups{QuantFormat::groups4, false, 64}, tiles{QuantFormat::fp8, false, 128, 128};
  for (const ops::Quantization& kind : {groups, tiles})
    for (int r = 0; r < 3; ++r) {
      const ModelSpec spec =
          ModelSpec::build(config, Finetuning::full, {}, WeightStorage::in(kind), Head::language_model, {}, {r, 3});
      int found = 0;
      for (const ParamSpec& p : spec.units[1].params) {
        if (!p.path.starts_with("mlp.") || !p.is_quantized()) continue;
        ++found;
        EXPECT_EQ(p.packed.kind, kind) << p.path << ", rank " << r << ", " << p.boxes.front().describe();
      }
      EXPECT_EQ(found, 3);
    }
}

}  // namespace
}  // namespace qft::model
