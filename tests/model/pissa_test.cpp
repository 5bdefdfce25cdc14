// PiSSA's initial factors and their files.
#include "qft/model/pissa.h"

#include "qft/model/adapter_config.h"

#include <cmath>
#include <string>
#include <vector>

#include "io/temp_dir.h"
#include "model/principal_factors.h"
#include "tiny_config.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace qft::model {
namespace {

using test::contains;
using test::error_of;
using test::TempDir;

double distance(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).norm().item<double>();
}

/// Returns a matrix [rows, columns] with singular values 1, 1/2, 1/4, ..., so that an iteration from any start converges quickly.
at::Tensor weight_of(std::int64_t rows, std::int64_t columns) {
  const auto [u, s, vt] = at::linalg_svd(at::randn({rows, columns}, at::kDouble), /*full_matrices=*/false);
  std::vector<double> values;
  for (std::int64_t i = 0; i < s.numel(); ++i) values.push_back(std::pow(0.5, i));
  return at::mm(u * at::tensor(values, at::kDouble), vt);
}

LoraConfig pissa_lora(const std::string& targets, std::int64_t rank = 4) {
  LoraConfig lora;
  lora.rank = rank;
  lora.alpha = 8;
  lora.set_targets(targets);
  lora.pissa = LoraConfig::Pissa{};
  return lora;
}

void start(const std::string& type, const LoraConfig& lora) {
  require_pissa(ModelSpec::build(ModelConfig::parse(base(type).dump(), "test"), Finetuning::adapter, lora));
}

std::string refusal(const std::string& type, const LoraConfig& lora) {
  return error_of([&] { start(type, lora); });
}

void write_file(const std::filesystem::path& path, const std::vector<std::pair<io::TensorSpec, std::vector<float>>>& tensors) {
  std::vector<io::TensorSpec> specs;
  for (const auto& [spec, values] : tensors) specs.push_back(spec);
  io::SafetensorsWriter writer(io::posix_storage(), path, specs);
  for (const auto& [spec, values] : tensors) writer.append(values.data(), values.size() * sizeof(float));
  writer.finish();
}

std::vector<float> read(const io::TensorFile& file, const std::string& name) {
  const io::TensorEntry& entry = file.at(name);
  std::vector<float> values(entry.elements());
  file.read(entry, 0, entry.bytes(), values.data());
  return values;
}

TEST(Pissa, TheFactorsAreNearestToTheWeight) {
  const std::int64_t rank = 5;
  for (const auto& [rows, columns] : {std::pair{24, 40}, {40, 24}, {5, 30}}) {
    const at::Tensor wide = weight_of(rows, columns), weight = wide.to(at::kFloat);
    const auto [u, s, vt] = at::linalg_svd(wide, /*full_matrices=*/false);
    const at::Tensor nearest = at::mm(u.narrow(1, 0, rank) * s.narrow(0, 0, rank), vt.narrow(0, 0, rank));
    for (const int iterations : {-1, 16}) {
      const PrincipalFactors f = principal_factors(weight, rank, 2.0, iterations, at::rand({rank, columns}, at::kFloat) * 2 - 1);
      const at::Tensor product = at::mm(f.b.to(at::kDouble), f.a.to(at::kDouble)) * 2.0;
      EXPECT_LT(distance(product, nearest) / nearest.norm().item<double>(), 1e-6) << rows << "x" << columns << " " << iterations;
      // Both factors have the same share of each singular value, and signs do not depend on rounding.
      EXPECT_LT(distance(f.a.norm(2, 1), f.b.norm(2, 0)), 1e-5);
      EXPECT_TRUE(f.a.gather(1, f.a.abs().argmax(1, true)).gt(0).all().item<bool>());
    }
  }
}

TEST(Pissa, ALowerRankLeavesZerosAndWhatIsNotFiniteIsRefused) {
  const PrincipalFactors f = principal_factors(at::zeros({6, 8}, at::kFloat), 3, 1.0, 4, at::rand({3, 8}, at::kFloat));
  EXPECT_EQ(f.a.abs().sum().item<float>() + f.b.abs().sum().item<float>(), 0.0F);
  at::Tensor bad = at::rand({6, 8}, at::kFloat);
  bad.select(0, 2).select(0, 1).fill_(NAN);
  EXPECT_TRUE(contains(error_of([&] { principal_factors(bad, 3, 1.0, 4, at::rand({3, 8}, at::kFloat)); }), "not finite"));
}

TEST(Pissa, ThePlainAdapterHasTheSameScaling) {
  LoraConfig lora = pissa_lora("q_proj,k_proj");
  lora.ranks = {{"k_proj", 2}};
  lora.alphas = {{"q_proj", 3.0}};
  for (const bool rslora : {false, true}) {
    lora.rslora = rslora;
    const LoraConfig plain = lora.plain();
    EXPECT_FALSE(plain.pissa);
    EXPECT_EQ(plain.rank, 8);
    EXPECT_EQ(plain.ranks.at("k_proj"), 4);
    EXPECT_DOUBLE_EQ(plain.scaling(), lora.scaling());
    EXPECT_DOUBLE_EQ(plain.scaling(4, plain.alpha), lora.scaling(2, lora.alpha));
    EXPECT_DOUBLE_EQ(plain.scaling(8, plain.alphas.at("q_proj")), lora.scaling(4, 3.0));
  }
}

TEST(Pissa, WhatItCannotStartFromIsRefusedByName) {
  EXPECT_NO_THROW(start("llama", pissa_lora("all")));
  EXPECT_TRUE(contains(refusal("qwen3_moe", pissa_lora("all")), "experts (mlp.experts) are not implemented"));
  EXPECT_TRUE(contains(refusal("llama", pissa_lora("all", 500)), "but rank 500: set lora_rank to"));
  LoraConfig none = pissa_lora("q_proj");
  none.alpha = 0;
  EXPECT_TRUE(contains(refusal("llama", none), "lora_alpha is 0"));
}

TEST(Pissa, AnUnconvertedAdapterReadsAsThePlainOne) {
  const TempDir dir;
  const std::string a = "base_model.model.x.lora_A.weight", b = "base_model.model.x.lora_B.weight",
                    m = "base_model.model.norm.weight";
  write_file(dir / "adapter_model.safetensors",
             {{{a, DType::f32, {1, 3}}, {1, 2, 3}}, {{b, DType::f32, {2, 1}}, {4, 5}}, {{m, DType::f32, {2}}, {6, 7}}});
  const auto initial = [&](const std::string& prefix, std::int64_t rows) {
    write_file(dir / kPissaInitFile,
               {{{prefix + a, DType::f32, {1, 3}}, {-1, -2, -3}},
                {{prefix + b, DType::f32, {rows, 1}}, std::vector<float>(static_cast<std::size_t>(rows), 8)}});
    return open_initial_factors(dir / kPissaInitFile);
  };
  const auto plain = [&](const std::string& prefix, std::int64_t rows) {
    return as_plain_adapter(io::open_tensor_file(dir / "adapter_model.safetensors"), initial(prefix, rows));
  };
  const auto file = plain(kPissaPrefix, 2);
  EXPECT_EQ(file->at(a).shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(file->at(b).shape, (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(read(*file, a), (std::vector<float>{1, 2, 3, -1, -2, -3}));
  EXPECT_EQ(read(*file, b), (std::vector<float>{4, -8, 5, -8}));
  EXPECT_EQ(read(*file, m), (std::vector<float>{6, 7}));
  float part = 0;
  file->read(file->at(b), 2 * sizeof(float), sizeof part, &part);
  EXPECT_EQ(part, 5);
  EXPECT_TRUE(contains(error_of([&] { plain(kPissaPrefix, 3); }), "with another shape"));
  EXPECT_TRUE(contains(error_of([&] { plain("", 2); }), "is not an initial PiSSA factor"));
  EXPECT_TRUE(contains(error_of([&] { open_initial_factors(dir / "none"); }), "does not exist"));
}

TEST(Pissa, TheConfigurationSaysHowItBegan) {
  const TempDir dir;
  LoraConfig lora = pissa_lora("q_proj");
  const auto write = [&] { std::ofstream(dir / kAdapterConfigFile) << adapter_config_json(lora, "base"); };
  write();
  EXPECT_TRUE(contains(test::read_bytes(dir / kAdapterConfigFile), R"("init_lora_weights": "pissa_niter_16")"));
  EXPECT_TRUE(contains(error_of([&] { read_adapter_config(dir.path()); }), "needs base weights other than the model's"));
  std::ofstream(dir / kPissaInitFile) << "";
  EXPECT_EQ(read_adapter_config(dir.path()).lora.rank, 8);
  lora.pissa->iterations = -1;
  write();
  EXPECT_TRUE(contains(test::read_bytes(dir / kAdapterConfigFile), R"("init_lora_weights": "pissa")"));
  lora = lora.plain();
  write();
  EXPECT_EQ(read_adapter_config(dir.path()).lora.rank, 8);
}

}  // namespace
}  // namespace qft::model
