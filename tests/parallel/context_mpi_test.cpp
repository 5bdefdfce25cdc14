// A step of ranks that share sequences, also beside ranks that share matrices, has loss, norm and gradients of one rank. Cuts lie
// within sequences and between a label and the row that predicts it; some ranks have no row.
#include "one_step.h"

namespace qft::parallel {
namespace {

/// Runs the setup with all ranks sharing sequences and, of 4, with pairs that share matrices.
void compare_contexts(Setup setup) {
  setup.context = world().size();
  setup.tensor = 1;
  compare(setup);
  if (world().size() != 4) return;
  setup.context = setup.tensor = 2;
  setup.name += ", 2 x 2";
  compare(setup);
}

/// Compares the sequences of a micro-batch with each other, as preference losses do.
class Pairs final : public SequenceObjective {
 public:
  double denominator() const override { return 3.0; }

 protected:
  at::Tensor observe_sequences(const model::MicroInput& /*in*/, const SequenceSums& sums, const at::Tensor& grad) const override {
    const at::Tensor total = sums.policy.sum();
    if (grad.defined()) grad.copy_((total / 3.0).expand_as(grad));
    return (total * total / 2.0).view({1});
  }
};

/// Reads the rows of logits: the label's gradient and a further one depend on all tokens.
class RowReader final : public Objective {
 public:
  ObjectiveKind kind() const override { return ObjectiveKind::row_local; }
  double denominator() const override { return 1.0; }
  std::int64_t row_values() const override { return 1; }
  at::Tensor read_rows(const model::MicroInput& in, const ops::HeadChunk& chunk, const at::Tensor& values,
                       const at::Tensor& grad) const override {
    const at::Tensor targets = in.labels.targets.narrow(0, chunk.first, chunk.size());
    EXPECT_TRUE(targets.equal(chunk.targets));
    const at::Tensor squares = (chunk.logits * chunk.logits).sum(1);
    chunk.sum_over_vocabulary(squares);
    values[0].copy_(squares);
    if (!grad.defined()) return {};
    grad.copy_(targets.to(grad.scalar_type()) * -0.01);
    return chunk.logits * 0.02;
  }
  at::Tensor observe(const model::MicroInput& in, const Logprobs& logprobs, const at::Tensor& /*grad*/) const override {
    const at::Tensor of_labels = in.labels.targets.to(at::kDouble) * -0.01 * logprobs.policy;
    return (of_labels + 0.01 * logprobs.rows[0]).sum().to(at::kDouble).view({1});
  }
};

const std::string kGrouped = R"("num_key_value_heads": 4, "head_dim": 4, "tie_word_embeddings": false)";

TEST(ContextRanks, TrainDenseModelsAsOneRank) {
  compare_contexts({.name = "biases, untied", .config = config_of("llama", R"("num_key_value_heads": 12, "head_dim": 4,
      "tie_word_embeddings": false, "attention_bias": true, "mlp_bias": true)")});
  compare_contexts({.name = "windows, tied, recomputed",
                    .config = config_of("qwen2", R"("num_key_value_heads": 4, "head_dim": 4, "tie_word_embeddings": true,
      "use_sliding_window": true, "max_window_layers": 1, "sliding_window": 4)"),
                    .recompute = true});
  compare_contexts({.name = "norms of heads", .config = config_of("qwen3", kGrouped)});
  compare_contexts({.name = "norms of all heads", .config = config_of("olmo2", kGrouped)});
  compare_contexts({.name = "noise on embeddings", .config = config_of("qwen2", kGrouped), .noise = 3.0});
}

/// Ranks begin and end within the query heads that a key head serves: 3 heads of 4 or 6, or some of all 12.
TEST(ContextRanks, SendKeyValueHeadsToSeveralRanks) {
  for (const int kv_heads : {1, 2, 3})
    compare_contexts({.name = fmt::format("{} key heads", kv_heads),
                      .config = config_of("qwen3", fmt::format(R"("num_key_value_heads": {}, "head_dim": 4,
      "tie_word_embeddings": false)", kv_heads))});
}

TEST(ContextRanks, TrainHeadsOfSequencesAsOneRank) {
  const std::string llama = config_of("llama", kGrouped);
  compare_contexts({.name = "value", .config = llama, .head = model::Head::value});
  compare_contexts({.name = "classifier", .config = llama, .head = model::Head::classifier(3)});
  compare_contexts({.name = "vector", .config = llama, .head = model::Head::vector(24)});
  compare_contexts({.name = "difference of tokens", .config = llama, .head = model::Head::token_difference(5, 49)});
}

TEST(ContextRanks, TrainObjectivesAsOneRank) {
  const std::string llama = config_of("llama", kGrouped);
  compare_contexts({.name = "sequences", .config = llama, .objective = [](const BatchTotals&) -> std::unique_ptr<Objective> {
                      return std::make_unique<Pairs>();
                    }});
  compare_contexts({.name = "rows of logits", .config = llama, .objective = [](const BatchTotals&) -> std::unique_ptr<Objective> {
                      return std::make_unique<RowReader>();
                    }});
}

TEST(ContextRanks, TrainExpertsAsOneRank) {
  const std::string experts = kGrouped + R"(, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
      "shared_expert_intermediate_size": 24, "mlp_only_layers": [1])";
  compare_contexts({.name = "shared expert", .config = config_of("qwen2_moe", experts)});
}

/// Value heads that do not divide by their ranks: 6 heads over 2 key heads.
TEST(ContextRanks, TrainDeltaNetsAsOneRank) {
  const std::string keys = R"("num_key_value_heads": 4, "head_dim": 8, "tie_word_embeddings": true, "linear_key_head_dim": 6,
      "linear_value_head_dim": 10, "layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 2,
      "linear_num_value_heads": 6)";
  compare_contexts({.name = "delta nets", .config = config_of("qwen3_5_text", keys)});
  compare_contexts({.name = "recomputed", .config = config_of("qwen3_5_text", keys), .recompute = true});
}

TEST(ContextRanks, TrainAdaptersAsOneRank) {
  model::LoraConfig lora;
  lora.rank = 3;
  lora.alpha = 6;
  lora.dropout = 0.3;
  lora.dora = true;
  lora.set_targets("all");
  compare_contexts({.name = "DoRA with dropout", .config = config_of("qwen3", kGrouped), .lora = lora, .dropout = 0.3});
}

TEST(ContextRanks, TrainUnderEachStrategyAsOneRank) {
  if (world().size() % 2 != 0) GTEST_SKIP() << "pairs of ranks share sequences";
  for (const char* strategy : {"ddp", "zero1", "zero2", "shard_grad_op", "zero3"})
    compare({.name = strategy, .config = config_of("qwen2", kGrouped), .strategy = strategy, .tensor = 1, .context = 2});
}

}  // namespace
}  // namespace qft::parallel
