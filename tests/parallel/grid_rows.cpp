#include <algorithm>
#include <array>
#include <set>

#include "grid.h"
#include <fmt/format.h>

namespace qft::parallel::grid {
namespace {

constexpr std::int64_t kWide = std::int64_t{1} << 40;

constexpr LayoutRow kLayouts[] = {
    {"ddp", {.replicate = 0}},
    {"zero1", {.replicate = 1, .shard = 0}},
    {"zero2", {.replicate = 1, .shard = 0}},
    {"shard_grad_op", {.replicate = 1, .shard = 0}},
    {"zero3", {.replicate = 1, .shard = 0}},
    {"hsdp", {.replicate = 0, .shard = 2}},
    {"hsdp", {.replicate = 2, .shard = 0}},
    {"ddp", {.replicate = 0, .tensor = 2}},
    {"zero1", {.replicate = 1, .shard = 0, .tensor = 2}},
    {"zero2", {.replicate = 1, .shard = 0, .tensor = 2}},
    {"shard_grad_op", {.replicate = 1, .shard = 0, .tensor = 2}},
    {"zero3", {.replicate = 1, .shard = 0, .tensor = 2}},
    {"hsdp", {.replicate = 2, .shard = 0, .tensor = 2}},
    {"zero2", {.replicate = 1, .shard = 0, .tensor = 3}},
    {"ddp", {.replicate = 0, .tensor = 4}},
    {"zero3", {.replicate = 1, .shard = 0, .tensor = 4}},
    {"ddp", {.replicate = 0, .context = 2}},
    {"zero1", {.replicate = 1, .shard = 0, .context = 2}},
    {"zero2", {.replicate = 1, .shard = 0, .context = 2}},
    {"zero3", {.replicate = 1, .shard = 0, .context = 2}},
    {"hsdp", {.replicate = 2, .shard = 0, .context = 2}},
    {"zero2", {.replicate = 1, .shard = 0, .context = 3}},
    {"ddp", {.replicate = 0, .context = 2, .tensor = 2}},
    {"zero3", {.replicate = 1, .shard = 2, .context = 2, .tensor = 2}},
};

constexpr WayRow kWays[] = {
    {.name = "plain"},
    {.name = "pairs of micro-batches", .group = 2, .micro_batch_size = 2},
    {.name = "recomputed", .recompute = true, .prefetch_budget = kWide, .micro_batch_size = 2},
    {.name = "optimizer offloaded", .offload = {.optimizer = true}, .micro_batch_size = 2},
    {.name = "weights offloaded", .offload = {.weights = true}, .group = 3},
    {.name = "activations offloaded", .recompute = true, .offload = {.activations = true}, .micro_batch_size = 64},
    {.name = "all offloaded", .recompute = true, .offload = {true, true, true}, .group = 2, .prefetch_budget = kWide},
};

/// Widths that divide badly: 6 heads over 2 or 3 key-value heads, a vocabulary of 53. Ranks share matrices evenly, unevenly (3
/// key-value heads over 2 ranks), or hold copies of a key-value head (2 over 4 ranks: 2, 1, 2 and 1 of the heads). The last one
/// has 5 blocks of 64 inner columns, and 4 of attention's.
constexpr ModelRow kModels[] = {
    {"qwen2 tied, windows", R"({"model_type": "qwen2", "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 53, "tie_word_embeddings": true,
        "use_sliding_window": true, "max_window_layers": 1, "sliding_window": 5})",
     "2 4"},
    {"qwen3 untied, q/k norms", R"({"model_type": "qwen3", "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
        "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 8, "vocab_size": 53, "tie_word_embeddings": false})",
     "2 3"},
    {"llama biases", R"({"model_type": "llama", "hidden_size": 24, "intermediate_size": 36, "num_hidden_layers": 2,
        "num_attention_heads": 6, "num_key_value_heads": 6, "head_dim": 4, "vocab_size": 53, "tie_word_embeddings": false,
        "attention_bias": true, "mlp_bias": true})",
     "2 3 4"},
    {"olmo2 q/k norms of all heads", R"({"model_type": "olmo2", "hidden_size": 24, "intermediate_size": 40,
        "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 53,
        "tie_word_embeddings": false})",
     "2 4"},
    {"qwen3_5 gates, delta nets", R"({"model_type": "qwen3_5_text", "hidden_size": 24, "intermediate_size": 40,
        "num_hidden_layers": 2, "full_attention_interval": 2, "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 8,
        "vocab_size": 53, "linear_num_key_heads": 3, "linear_num_value_heads": 6, "linear_key_head_dim": 6,
        "linear_value_head_dim": 10, "tie_word_embeddings": true})",
     "2 3", false, false},
    {"qwen2_moe shared expert", R"({"model_type": "qwen2_moe", "hidden_size": 24, "intermediate_size": 40,
        "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 53,
        "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 24,
        "mlp_only_layers": [1], "tie_word_embeddings": false})",
     "2 4", true},
    {"qwen3_next experts, delta nets", R"({"model_type": "qwen3_next", "hidden_size": 24, "intermediate_size": 40,
        "num_hidden_layers": 2, "full_attention_interval": 2, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 8,
        "vocab_size": 53, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 6,
        "linear_value_head_dim": 10, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
        "shared_expert_intermediate_size": 24, "tie_word_embeddings": false})",
     "2", true},
    {"qwen3 in blocks of 64", R"({"model_type": "qwen3", "hidden_size": 64, "intermediate_size": 320, "num_hidden_layers": 1,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 32, "vocab_size": 53, "tie_word_embeddings": true})",
     "2 3 4", false, true, true},
};

/// Optimizers whose rules see whole matrices stand beside other things that they do not depend on.
constexpr TaskRow kTasks[] = {
    {"full", "finetuning_type: full\n"},
    {"freeze", "finetuning_type: freeze\nfreeze_trainable_layers: 1\n"},
    {"LoRA with dropout", "finetuning_type: lora\nlora_rank: 3\nlora_alpha: 6\nlora_target: all\nlora_dropout: 0.3\n"},
    {"DoRA", "finetuning_type: lora\nlora_rank: 3\nlora_target: all\nuse_dora: true\nlora_dropout: 0.3\n", false},
    {"OFT", "finetuning_type: oft\noft_block_size: 4\noft_target: all\n", false},
    {"nf4", "finetuning_type: lora\nlora_rank: 3\nlora_target: all\nquantization_bit: 4\n", true, false, true},
    {"DPO", "stage: dpo\nfinetuning_type: lora\nlora_rank: 3\nlora_target: all\npref_beta: 0.5\npref_ftx: 0.1\n"},
    {"KTO, APOLLO",
     "stage: kto\nfinetuning_type: lora\nlora_rank: 3\nlora_target: all\npref_beta: 0.5\noptim: apollo_adamw\n"
     "optim_args: rank=2\n"},
    {"reward model", "stage: rm\nfinetuning_type: full\n"},
    {"classifier", "stage: seq_cls\nfinetuning_type: lora\nlora_rank: 3\nlora_target: all\nnum_labels: 3\n", true, true},
    {"DFT, Muon", "finetuning_type: full\nuse_dft_loss: true\noptim: muon\n"},
    {"NEFTune, Adafactor", "finetuning_type: full\nneftune_noise_alpha: 3\noptim: adafactor\n"},
    {"packed rows, GaLore", "finetuning_type: full\npacking: true\noptim: galore_adamw\noptim_args: rank=4\n"},
    {"8-bit AdamW", "finetuning_type: full\noptim: adamw_8bit\n", true, false, false, true},
    {"embedding", "stage: embedding\nfinetuning_type: lora\nlora_rank: 3\nlora_target: all\nlora_dropout: 0.3\n"},
};

/// The numbers of ranks of ctest's entries. The last one takes the layouts that fewer ranks do not have, and few of the others.
constexpr int kRankCounts[] = {2, 3, 4};
constexpr int kManyRanks = 8;
constexpr std::size_t kOfManyRanks = 10;  ///< takes one case of this many

/// Returns whether these ranks have the layout: its degrees divide them, and it is not another row's.
bool suits(const LayoutRow& layout, int ranks) {
  const comm::Degrees& d = layout.degrees;
  const int known = std::max(1, d.replicate) * std::max(1, d.shard) * d.context * d.tensor;
  if (ranks % known != 0) return false;
  if (d.replicate > 0 && d.shard > 0 && ranks != known) return false;  // no degree takes the rest
  const comm::Degrees all = comm::resolve(d, ranks);
  return layout.strategy != "hsdp" || (all.replicate > 1 && all.shard > 1);
}

/// Returns whether ranks can share the model's matrices as the layout says.
bool suits(const LayoutRow& layout, const ModelRow& model) {
  const int ranks = layout.degrees.tensor;
  return ranks == 1 || model.tensor.find(static_cast<char>('0' + ranks)) != std::string_view::npos;
}

bool valid(const Case& c) {
  const bool cuts_blocks = c.task->quantized && c.layout->degrees.tensor > 1;
  return suits(*c.layout, *c.model) && (!(cuts_blocks || c.task->large) || c.model->in_blocks) &&
         (c.task->of_experts || !c.model->experts) && (c.model->classifies || !c.task->classifies);
}

using Choice = std::array<int, 4>;  // indices into the four tables

Case case_of(const Choice& c) {
  return {&kLayouts[c[0]], &kWays[c[1]], &kModels[c[2]], &kTasks[c[3]]};
}

std::vector<Choice> product() {
  std::vector<Choice> all;
  for (int layout = 0; layout < std::ssize(kLayouts); ++layout)
    for (int way = 0; way < std::ssize(kWays); ++way)
      for (int model = 0; model < std::ssize(kModels); ++model)
        for (int task = 0; task < std::ssize(kTasks); ++task)
          if (const Choice c{layout, way, model, task}; valid(case_of(c))) all.push_back(c);
  return all;
}

/// The pairs of rows of two tables that no case has yet.
class OpenPairs {
 public:
  explicit OpenPairs(const std::vector<Choice>& all) : open_(16 * kMostRows * kMostRows) {
    for (const Choice& c : all)
      for (const std::size_t pair : pairs(c)) open_[pair] = true;
  }
  int count(const Choice& c) const {
    int count = 0;
    for (const std::size_t pair : pairs(c)) count += open_[pair];
    return count;
  }
  void close(const Choice& c) {
    for (const std::size_t pair : pairs(c)) open_[pair] = false;
  }

 private:
  static constexpr std::size_t kMostRows = 32;
  static_assert(std::max({std::size(kLayouts), std::size(kWays), std::size(kModels), std::size(kTasks)}) <= kMostRows);
  static std::array<std::size_t, 6> pairs(const Choice& c) {
    std::array<std::size_t, 6> numbers{};
    std::size_t next = 0;
    for (std::size_t a = 0; a < 4; ++a)
      for (std::size_t b = a + 1; b < 4; ++b)
        numbers[next++] = ((a * 4 + b) * kMostRows + static_cast<std::size_t>(c[a])) * kMostRows + static_cast<std::size_t>(c[b]);
    return numbers;
  }
  std::vector<bool> open_;
};

/// Returns the number of ranks on which entry `index` of the cover runs.
int ranks_of(const LayoutRow& layout, std::size_t index) {
  if (layout.degrees.replicate > 1 || (index % kOfManyRanks == 0 && suits(layout, kManyRanks))) return kManyRanks;
  for (std::size_t i = 0; i < std::size(kRankCounts); ++i)
    if (const int ranks = kRankCounts[(index + i) % std::size(kRankCounts)]; suits(layout, ranks)) return ranks;
  return kManyRanks;
}

struct Covering {
  Choice first, second;
  int ranks;
};

/// Returns choices that cover each pair of rows of two tables, greedily: the one with most open pairs, and the one with most that
/// can continue it on the same ranks, under another layout if there is one.
std::vector<Covering> cover() {
  const std::vector<Choice> all = product();
  OpenPairs open(all);
  std::vector<Covering> cover;
  for (;;) {
    const Choice first = *std::ranges::max_element(all, {}, [&](const Choice& c) { return open.count(c); });
    if (open.count(first) == 0) return cover;
    open.close(first);
    const int ranks = ranks_of(kLayouts[first[0]], cover.size());
    const auto continues = [&](const Choice& c) {
      const bool can = c[2] == first[2] && c[3] == first[3] && suits(kLayouts[c[0]], ranks);
      return can ? std::pair(c[0] != first[0], open.count(c)) : std::pair(false, -1);
    };
    const Choice second = *std::ranges::max_element(all, {}, continues);
    open.close(second);
    cover.push_back({first, second, ranks});
  }
}

}  // namespace

std::span<const ModelRow> models() {
  return kModels;
}
std::span<const TaskRow> tasks() {
  return kTasks;
}

std::string name_of(const Case& c) {
  const comm::Degrees& d = c.layout->degrees;
  return fmt::format("{} ({} x {} x context {} x tensor {}), {}, {}, {}", c.layout->strategy, d.replicate, d.shard, d.context,
                     d.tensor, c.way->name, c.model->name, c.task->name);
}

std::vector<Entry> entries(int ranks, bool all) {
  std::vector<Entry> list;
  for (const Covering& c : cover()) {
    const Case first = case_of(c.first), second = case_of(c.second);
    const bool suited = suits(*first.layout, ranks), second_suited = suits(*second.layout, ranks);
    if (all ? suited || second_suited : c.ranks == ranks)
      list.push_back({suited ? first : second, second_suited ? second : first});
  }
  return list;
}

}  // namespace qft::parallel::grid
