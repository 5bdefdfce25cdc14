#include <gtest/gtest.h>

#include <map>
#include <set>

#include "qft/parallel/action.h"

namespace qft::parallel {
namespace {

model::ModelSpec tiny(bool tied, bool lora) {
  const std::string text = std::string(R"({"model_type":"qwen2","hidden_size":8,"intermediate_size":16,)") +
                           R"("num_hidden_layers":3,"num_attention_heads":2,"vocab_size":32,"tie_word_embeddings":)" +
                           (tied ? "true}" : "false}");
  model::LoraConfig config;
  if (lora) {
    config.rank = 2;
    config.alpha = 4;
    config.set_targets("all");
  }
  return model::ModelSpec::build(model::ModelConfig::parse(text, "tiny"),
                                 lora ? model::Finetuning::lora : model::Finetuning::full, config);
}

/// Every property that an executor relies on; throws through gtest on the first that fails.
void check(const model::ModelSpec& spec, const ScheduleOptions& options) {
  const ActionList list = training_schedule(spec, options);
  std::map<int, int> held;
  std::map<std::pair<int, int>, int> forwards, backwards;
  std::map<int, int> reductions;
  for (const Action& a : list) {
    SCOPED_TRACE(describe(a, spec));
    switch (a.kind) {
      case ActionKind::acquire: ++held[a.target]; break;
      case ActionKind::release: ASSERT_GT(held[a.target]--, 0); break;
      case ActionKind::forward:
      case ActionKind::backward:
        for (const int unit : spec.units_of_block(a.target)) ASSERT_GT(held[unit], 0) << "weights are not held";
        if (a.kind == ActionKind::forward) {
          ASSERT_EQ((forwards[{a.target, a.micro}]++), 0);
          if (a.target > 0) {
            ASSERT_EQ((forwards[{a.target - 1, a.micro}]), 1);
          }
        } else {
          ASSERT_EQ((forwards[{a.target, a.micro}]), 1);
          ASSERT_EQ((backwards[{a.target, a.micro}]++), 0);
          ASSERT_EQ(reductions[a.target], options.reduce_every_group ? reductions[a.target] : 0);
        }
        break;
      case ActionKind::reduce: ++reductions[a.target]; break;
      case ActionKind::step: break;
    }
  }
  for (const auto& [unit, count] : held) EXPECT_EQ(count, 0) << "unit " << unit << " stays held";
  const int groups = (options.slots + options.group - 1) / options.group;
  for (int b = 0; b < spec.num_units(); ++b) {
    const bool trains = spec.units[static_cast<std::size_t>(b)].trainable_numel > 0;
    EXPECT_EQ(reductions[b], trains ? (options.reduce_every_group ? groups : 1) : 0) << b;
    for (int m = 0; m < options.micro_batches; ++m) EXPECT_EQ((forwards[{b, m}]), 1);
  }
  EXPECT_EQ(list.back().kind, ActionKind::step);
}

TEST(Schedule, HoldsWeightsAndOrderForEveryShape) {
  for (const bool tied : {false, true})
    for (const bool lora : {false, true})
      for (const bool every : {false, true})
        for (int slots = 1; slots <= 5; ++slots)
          for (int micros = 0; micros <= slots; ++micros)
            for (int group = 1; group <= slots; ++group) check(tiny(tied, lora), {micros, slots, group, every});
}

TEST(Schedule, BreadthFirstAcquiresEachUnitOncePerPassAndGroup) {
  const auto spec = tiny(false, true);
  const auto acquires = [&](int group) {
    int n = 0;
    for (const Action& a : training_schedule(spec, {8, 8, group, false})) n += a.kind == ActionKind::acquire;
    return n;
  };
  EXPECT_EQ(acquires(1), 8 * acquires(8));
}

TEST(Schedule, RanksWithDifferentWorkIssueTheSameCollectives) {
  const auto spec = tiny(true, false);
  const auto collectives = [&](int micros) {
    ActionList kept;
    for (const Action& a : training_schedule(spec, {micros, 3, 2, true}))
      if (a.micro < 0) kept.push_back(a);
    return kept;
  };
  EXPECT_EQ(collectives(0), collectives(3));
  EXPECT_EQ(collectives(1), collectives(2));
}

TEST(Schedule, NothingFlowsBelowTheLowestTrainableBlock) {
  const auto spec = tiny(false, true);  // LoRA: the embedding is frozen
  for (const Action& a : training_schedule(spec, {2, 2, 1, false}))
    EXPECT_FALSE(a.kind == ActionKind::backward && a.target == 0);
}

}  // namespace
}  // namespace qft::parallel
