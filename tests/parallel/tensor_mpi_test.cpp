// A step of ranks that share matrices and rows has loss, norm and gradients of one rank, for every kind of layer and head, with
// micro-batches of any number of rows. The grid (grid_mpi_test.cpp) compares whole runs.
#include "one_step.h"

namespace qft::parallel {
namespace {

model::LoraConfig lora_of(double dropout, bool dora) {
  model::LoraConfig lora;
  lora.rank = 3;
  lora.alpha = 6;
  lora.dropout = dropout;
  lora.dora = dora;
  lora.set_targets("all");
  return lora;
}

const std::string kLlama = config_of("llama", R"("num_key_value_heads": 12, "head_dim": 4, "tie_word_embeddings": false,
    "attention_bias": true, "mlp_bias": true)");
const std::string kTied = config_of("qwen2", R"("num_key_value_heads": 4, "head_dim": 4, "tie_word_embeddings": true,
    "use_sliding_window": true, "max_window_layers": 1, "sliding_window": 4)");
const std::string kOlmo = config_of("olmo2", R"("num_key_value_heads": 12, "head_dim": 4, "tie_word_embeddings": false)");

TEST(TensorRanks, TrainDenseModelsAsOneRank) {
  compare({.name = "biases, untied", .config = kLlama});
  compare({.name = "windows, tied, recomputed", .config = kTied, .recompute = true});
  compare({.name = "norms of heads",
           .config = config_of("qwen3", R"("num_key_value_heads": 4, "head_dim": 8, "tie_word_embeddings": false)")});
  compare({.name = "noise on embeddings", .config = kTied, .noise = 3.0});
}

TEST(TensorRanks, TrainNormsOfAllHeadsAsOneRank) {
  compare({.name = "each key-value head on one rank", .config = kOlmo});
}

TEST(TensorRanks, TrainHeadsOfSequencesAsOneRank) {
  compare({.name = "value", .config = kLlama, .head = model::Head::value});
  compare({.name = "classifier", .config = kLlama, .head = model::Head::classifier(3)});
  compare({.name = "vector", .config = kLlama, .head = model::Head::vector(24)});
  compare({.name = "difference of tokens", .config = kLlama, .head = model::Head::token_difference(5, 49)});
  compare({.name = "difference of tokens, tied", .config = kTied, .head = model::Head::token_difference(5, 49)});
}

/// Two, three and four ranks share one key-value head.
TEST(TensorRanks, ShareAKeyValueHead) {
  const std::string one = R"("num_key_value_heads": 1, "head_dim": 4, "tie_word_embeddings": false)";
  compare({.name = "dense", .config = config_of("qwen2", one)});
  compare({.name = "norms of heads", .config = config_of("qwen3", one)});
  compare({.name = "norms of all heads", .config = config_of("olmo2", one)});
}

TEST(TensorRanks, TrainExpertsAsOneRank) {
  const std::string experts = R"("num_key_value_heads": 4, "head_dim": 4, "tie_word_embeddings": false, "num_experts": 6,
      "num_experts_per_tok": 2, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 24, "mlp_only_layers": [1])";
  compare({.name = "shared expert", .config = config_of("qwen2_moe", experts)});
  compare({.name = "LoRA", .config = config_of("qwen2_moe", experts), .lora = lora_of(0.3, false), .dropout = 0.3});
}

TEST(TensorRanks, TrainDeltaNetsAsOneRank) {
  compare({.name = "delta nets", .config = config_of("qwen3_5_text", R"("num_key_value_heads": 4, "head_dim": 8,
      "tie_word_embeddings": true, "linear_num_key_heads": 5, "linear_num_value_heads": 10, "linear_key_head_dim": 6,
      "linear_value_head_dim": 10, "layer_types": ["linear_attention", "full_attention"])")});
}

TEST(TensorRanks, TrainAdaptersAsOneRank) {
  compare({.name = "LoRA with dropout", .config = kLlama, .lora = lora_of(0.3, false), .dropout = 0.3});
  compare({.name = "LoRA, tied", .config = kTied, .lora = lora_of(0.0, false)});
  compare({.name = "DoRA", .config = kLlama, .lora = lora_of(0.0, true)});
  compare({.name = "DoRA with dropout", .config = kLlama, .lora = lora_of(0.3, true), .recompute = true, .dropout = 0.3});
}

TEST(TensorRanks, TrainUnderEachStrategyAsOneRank) {
  if (world().size() % 2 != 0) GTEST_SKIP() << "pairs of ranks share matrices";
  for (const char* strategy : {"ddp", "zero1", "zero2", "shard_grad_op", "zero3"})
    compare({.name = strategy, .config = kTied, .strategy = strategy, .tensor = 2});
}

}  // namespace
}  // namespace qft::parallel
