#include "qft/parallel/activation_bytes.h"

#include "qft/model/config.h"
#include "qft/model/transformer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <gtest/gtest.h>

namespace qft::parallel {
namespace {

model::ModelSpec spec_of(const std::string& type, std::int64_t rank, bool dora = false) {
  const std::string text =
      R"({"model_type":")" + type +
      R"(","hidden_size":64,"intermediate_size":160,"num_hidden_layers":3,"num_attention_heads":4,)" +
      R"("num_key_value_heads":2,"head_dim":16,"vocab_size":32,"tie_word_embeddings":true,)" +
      R"("linear_num_key_heads":2,"linear_num_value_heads":4,"linear_key_head_dim":12,"linear_value_head_dim":8,)" +
      R"("num_experts":4,"num_local_experts":4,"num_experts_per_tok":2,"moe_intermediate_size":48,)" +
      R"("shared_expert_intermediate_size":32})";
  model::LoraConfig lora;
  if (rank > 0) {
    lora.rank = rank;
    lora.alpha = 8;
    lora.dora = dora;
    lora.set_targets(dora ? "q_proj,v_proj,out_proj" : "q_proj,v_proj,down_proj");
    lora.ranks = {{"v_proj", rank + 2}};
  }
  return model::ModelSpec::build(model::ModelConfig::parse(text, "test"),
                                 rank > 0 ? model::Finetuning::adapter : model::Finetuning::full, lora);
}

/// Returns the bytes that a layer's forward takes from an arena.
std::int64_t measured(const model::ModelSpec& spec, std::int64_t tokens) {
  model::Transformer t(spec, at::kFloat, at::kCPU);
  t.ensure_positions(tokens);
  const auto options = at::TensorOptions().dtype(at::kFloat);
  const auto& unit = spec.units[1];
  const auto buffer = [&](std::int64_t n) { return at::empty({n}, options).fill_(0.01); };
  model::UnitBuffers flat{buffer(unit.frozen_numel), buffer(unit.trainable_numel), {}};
  flat.derived = buffer(unit.derived_numel);
  const std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens), 1), cu = {0, static_cast<std::int32_t>(tokens)};
  const auto in = model::MicroInput::build(ids, cu, {}, {}, at::kCPU);
  const at::Tensor x = buffer(tokens * 64).view({tokens, 64}), y = at::empty_like(x);
  model::Arena arena(at::kCPU);
  const auto weights = model::bind_layer(spec, unit, flat);
  t.layer_forward(0, weights, in, {}, y, t.allocate_saved(0, weights, x, arena));
  return arena.mark().used;
}

TEST(ActivationBytes, AreWhatALayerTakes) {
  constexpr std::int64_t kTokens = 1024;
  for (const std::string_view type : model::architectures())
    for (const auto& [rank, dora] : {std::pair{0, false}, {5, false}, {5, true}}) {
      const auto spec = spec_of(std::string(type), rank, dora);
      const std::int64_t with = activation_bytes(spec, at::kFloat, kTokens, true);
      const std::int64_t without = activation_bytes(spec, at::kFloat, kTokens, false);
      EXPECT_EQ(with, kTokens * 64 * 4 * (3 + 2));
      EXPECT_EQ((without - with) / 3, measured(spec, kTokens)) << type << " rank " << rank << (dora ? " DoRA" : "");
    }
}

TEST(ActivationBytes, CountAnglesWhereASequenceMayHaveItsOwn) {
  constexpr std::int64_t kTokens = 1024;
  const auto plain = spec_of("llama", 0);
  auto dynamic = plain;
  dynamic.config.rope.dynamic = {2.0, kTokens - 1};
  model::Transformer t(dynamic, at::kFloat, at::kCPU);
  const std::vector<std::int32_t> ids(kTokens, 1), cu = {0, kTokens};
  model::Arena arena(at::kCPU);
  ASSERT_TRUE(t.dynamic_angles(model::MicroInput::build(ids, cu, {}, {}, at::kCPU), arena));
  for (const bool offloaded : {false, true})
    EXPECT_EQ(activation_bytes(dynamic, at::kFloat, kTokens, true, offloaded),
              activation_bytes(plain, at::kFloat, kTokens, true, offloaded) + arena.mark().used);
  EXPECT_EQ(forward_bytes(dynamic, at::kFloat, kTokens), forward_bytes(plain, at::kFloat, kTokens) + arena.mark().used);
  EXPECT_EQ(forward_bytes(dynamic, at::kFloat, kTokens - 1), forward_bytes(plain, at::kFloat, kTokens - 1));
}

TEST(ActivationBytes, OftLeavesNothingToBackward) {
  model::OftConfig oft;
  oft.block_size = 8;
  oft.set_targets("q_proj,v_proj,o_proj");
  const auto plain = spec_of("qwen3", 0);
  const auto spec = model::ModelSpec::build(plain.config, model::Finetuning::adapter, oft);
  EXPECT_EQ(measured(spec, 1024), measured(plain, 1024));
  EXPECT_EQ(activation_bytes(spec, at::kFloat, 1024, false), activation_bytes(plain, at::kFloat, 1024, false));
}

TEST(ActivationBytes, OfLayersBelowTheLowestThatTrainsAreNotKept) {
  constexpr std::int64_t kTokens = 1024, kBoundary = kTokens * 64 * 4;
  const auto all = spec_of("llama", 0);
  const auto last =
      model::ModelSpec::build(all.config, model::Finetuning::freeze, {}, model::WeightStorage::in({}),
                              model::Head::language_model, {.layers = {2}, .modules = {"all"}, .extra_modules = {}});
  EXPECT_EQ(activation_bytes(last, at::kFloat, kTokens, true), kBoundary * (2 + 1 + 1));  // one kept, and one passed on
  const std::int64_t kept =
      activation_bytes(last, at::kFloat, kTokens, false) - activation_bytes(last, at::kFloat, kTokens, true);
  EXPECT_EQ(kept, measured(all, kTokens));
}

}  // namespace
}  // namespace qft::parallel
