#include "qft/parallel/action.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace qft::parallel {
namespace {

model::ModelSpec tiny(bool tied, bool lora, bool experts = false) {
  const std::string text =
      fmt::format(R"({{"model_type":"{}","hidden_size":8,"intermediate_size":16,"num_hidden_layers":3,"num_attention_heads":2,)"
                  R"("num_experts":4,"num_experts_per_tok":2,"moe_intermediate_size":8,"mlp_only_layers":[1],)"
                  R"("vocab_size":32,"tie_word_embeddings":{}}})",
                  experts ? "qwen3_moe" : "qwen2", tied);
  model::LoraConfig config;
  if (lora) {
    config.rank = 2;
    config.alpha = 4;
    config.set_targets("all");
  }
  return model::ModelSpec::build(model::ModelConfig::parse(text, "tiny"),
                                 lora ? model::Finetuning::adapter : model::Finetuning::full, config);
}

/// Checks that a micro-batch is in flight from its first action to its last, and that each promised gradient follows.
void check_marks(const model::ModelSpec& spec, const ActionList& list) {
  std::map<std::pair<int, Lane>, std::vector<Action>> micros;
  for (const Action& a : list)
    if (a.micro >= 0) micros[{a.micro, a.lane}].push_back(a);
  for (const auto& [micro, actions] : micros) {
    for (std::size_t i = 0; i < actions.size(); ++i) {
      SCOPED_TRACE(describe(actions[i], spec));
      EXPECT_EQ(actions[i].first, i == 0);
      EXPECT_EQ(actions[i].last, i + 1 == actions.size());
      if (actions[i].lane == Lane::reference) {
        EXPECT_EQ(actions[i].kind, ActionKind::forward);
      }
      const bool forward = actions[i].kind == ActionKind::forward;
      const int below = actions[i].target - (forward ? 0 : 1);
      const bool comes =
          std::ranges::any_of(actions, [&](const Action& b) { return b.kind == ActionKind::backward && b.target == below; });
      EXPECT_EQ(actions[i].needs_gradient, comes);
    }
  }
}

/// Checks that the reference passes each block before the policy, under the same acquire, and that removing its lane gives the
/// list without a reference.
void check_reference(const model::ModelSpec& spec, const ActionList& with, const ActionList& without) {
  check_marks(spec, with);
  ActionList policy;
  for (std::size_t i = 0; i < with.size(); ++i) {
    if (with[i].lane == Lane::policy) {
      policy.push_back(with[i]);
      continue;
    }
    ASSERT_LT(i + 1, with.size());
    const Action& next = with[i + 1];
    EXPECT_EQ(next.kind, with[i].kind);
    EXPECT_TRUE(next.kind == ActionKind::forward || next.kind == ActionKind::join_exchange);
    EXPECT_EQ(next.lane, Lane::policy);
    EXPECT_EQ(std::pair(next.target, next.micro), std::pair(with[i].target, with[i].micro));
  }
  EXPECT_EQ(policy, without);
}

/// Checks every property that an executor relies on; stops at the first failure.
void check(const model::ModelSpec& spec, const Schedule& schedule, const MicroBatches& counts, const ActionList& list) {
  check_marks(spec, list);
  std::map<int, int> held;
  std::map<std::pair<int, int>, int> forwards, backwards;
  std::map<int, int> reductions;
  for (const Action& a : list) {
    SCOPED_TRACE(describe(a, spec));
    switch (a.kind) {
      case ActionKind::acquire:
        ++held[a.target];
        break;
      case ActionKind::release:
        ASSERT_GT(held[a.target]--, 0);
        break;
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
          if (a.target < spec.head_unit()) {
            ASSERT_EQ((backwards[{a.target + 1, a.micro}]), 1);
          }
          ASSERT_EQ((backwards[{a.target, a.micro}]++), 0);
          ASSERT_EQ(reductions[a.target], schedule.reduce_every_group ? reductions[a.target] : 0);
        }
        break;
      case ActionKind::reduce:
        ++reductions[a.target];
        break;
      case ActionKind::gather:
      case ActionKind::gather_frozen:
      case ActionKind::join_exchange:
      case ActionKind::vote:
      case ActionKind::step:
        break;
    }
  }
  for (const auto& [unit, count] : held) EXPECT_EQ(count, 0) << "unit " << unit << " stays held";
  const int groups = groups_of(schedule, counts.most);
  bool flows = false;  // from the lowest trained block upwards
  for (int b = 0; b < spec.num_units(); ++b) {
    const bool trains = spec.units[static_cast<std::size_t>(b)].trainable_numel > 0;
    for (const int unit : spec.units_of_block(b)) flows = flows || spec.units[static_cast<std::size_t>(unit)].trainable_numel > 0;
    EXPECT_EQ(reductions[b], trains ? (schedule.reduce_every_group ? groups : 1) : 0) << b;
    for (int m = 0; m < counts.here; ++m) {
      EXPECT_EQ((forwards[{b, m}]), 1);
      EXPECT_EQ((backwards[{b, m}]), flows ? 1 : 0) << "block " << b << ", micro-batch " << m;
    }
  }
}

std::vector<GatheredBytes> gathered(const model::ModelSpec& spec) {
  std::vector<GatheredBytes> bytes;
  for (const auto& unit : spec.units) bytes.push_back({unit.frozen_numel, unit.trainable_numel});
  return bytes;
}

TEST(Schedule, HoldsWeightsAndOrderForEveryShape) {
  for (const bool tied : {false, true})
    for (const bool lora : {false, true})
      for (const bool every : {false, true})
        for (int max_micro_batches = 1; max_micro_batches <= 5; ++max_micro_batches)
          for (int micros = 0; micros <= max_micro_batches; ++micros)
            for (std::int64_t group = 1; group <= max_micro_batches; ++group)
              for (const bool reshard : {false, true}) {
                const auto spec = tiny(tied, lora);
                const Schedule schedule{group, every, reshard};
                const MicroBatches counts{micros, max_micro_batches};
                const auto list = training_actions(spec, schedule, counts);
                EXPECT_EQ(list.back().kind, ActionKind::step);
                check(spec, schedule, counts, list);
                check(spec, schedule, counts, insert_prefetches(list, gathered(spec), 3000));
                if (!lora) continue;
                Schedule lanes = schedule;
                lanes.reference = true;
                const auto both = training_actions(spec, lanes, counts);
                check_reference(spec, both, list);
                check_reference(spec, insert_prefetches(both, gathered(spec), 3000),
                                insert_prefetches(list, gathered(spec), 3000));
              }
}

/// The ranks must agree on the number of forward passes of layers with experts.
TEST(Schedule, RanksWithFewerMicroBatchesHaveAsManyPassesOfExperts) {
  const auto spec = tiny(false, true, /*experts=*/true);
  for (const bool reference : {false, true})
    for (const std::int64_t group : {1, 2, 5})
      for (int micros = 0; micros <= 5; ++micros) {
        const Schedule schedule{.group = group, .reference = reference};
        const MicroBatches counts{micros, 5};
        for (const auto& list : {training_actions(spec, schedule, counts), evaluation_actions(spec, schedule, counts)}) {
          std::map<int, std::vector<Lane>> passes;
          for (const Action& a : insert_prefetches(list, gathered(spec), 3000)) {
            if (a.kind == ActionKind::join_exchange) {
              EXPECT_TRUE(spec.has_experts(a.target)) << describe(a, spec);
            }
            if (a.kind == ActionKind::forward || a.kind == ActionKind::join_exchange) passes[a.target].push_back(a.lane);
          }
          std::vector<Lane> all;
          for (int m = 0; m < 5; ++m) {
            if (reference) all.push_back(Lane::reference);
            all.push_back(Lane::policy);
          }
          EXPECT_EQ(passes[1], all) << "group " << group << ", " << micros << " micro-batches";
          EXPECT_EQ(passes[3], all);
          EXPECT_EQ(passes[2].size(), static_cast<std::size_t>(micros * (reference ? 2 : 1))) << "a dense layer";
        }
      }
}

TEST(Schedule, EvaluationNeedsNoGradientAndEndsAtTheHead) {
  const auto spec = tiny(true, true);
  const auto list = evaluation_actions(spec, {2, false}, {3, 3});
  check_marks(spec, list);
  check_reference(spec, evaluation_actions(spec, {.group = 2, .reference = true}, {3, 3}),
                  list);
}

TEST(Schedule, AnActionIsDescribedWithItsLane) {
  const auto spec = tiny(true, true);
  Action action{.kind = ActionKind::forward, .target = 2, .micro = 1};
  EXPECT_EQ(describe(action, spec), "forward(layer 1, micro 1)");
  action.lane = Lane::reference;
  EXPECT_EQ(describe(action, spec), "forward(layer 1, micro 1, reference)");
}

TEST(Schedule, VotesStandBetweenGroups) {
  const auto spec = tiny(false, true);
  const auto list = training_actions(spec, {1, true, true}, {5, 5, 2});
  int micros = 0;
  std::vector<int> before;  // micro-batches done before each vote
  for (const Action& a : list) {
    micros += a.kind == ActionKind::forward && a.target == spec.head_unit();
    if (a.kind == ActionKind::vote) before.push_back(micros);
  }
  EXPECT_EQ(before, (std::vector<int>{0, 2, 4}));
}

TEST(Schedule, LongStepsVoteEveryTwoSecondsOrMore) {
  EXPECT_EQ(groups_per_vote(0.0, 8), 0);
  EXPECT_EQ(groups_per_vote(3.9, 8), 0);
  EXPECT_EQ(groups_per_vote(4.0, 8), 4);
  EXPECT_EQ(groups_per_vote(10.0, 8), 2);
  EXPECT_EQ(groups_per_vote(100.0, 8), 1);
  EXPECT_EQ(groups_per_vote(100.0, 1), 1);
  EXPECT_EQ(groups_per_vote(std::numeric_limits<double>::infinity(), 64), 1);
}

/// Runs a list with gathers: counts gathers, and the peak of bytes that wait unused.
struct Simulated {
  std::int64_t bytes = 0, waiting_peak = 0;
  int late = 0;  ///< acquires without an earlier gather
};

Simulated simulate(const ActionList& list, const std::vector<GatheredBytes>& units) {
  Simulated out;
  std::map<int, int> held;
  std::map<int, bool> here;
  for (const Action& a : list) {
    const auto bytes = a.micro < 0 && a.target >= 0 ? units[static_cast<std::size_t>(a.target)].total() : 0;
    if (a.kind == ActionKind::gather) {
      EXPECT_FALSE(here[a.target]);
      here[a.target] = true;
      out.bytes += bytes;
    } else if (a.kind == ActionKind::acquire) {
      out.late += !here[a.target];
      ++held[a.target];
    } else if (a.kind == ActionKind::release && --held[a.target] == 0) {
      here[a.target] = false;
    }
    std::int64_t waiting = 0;
    for (const auto& [unit, is_here] : here)
      if (is_here && held[unit] == 0) waiting += units[static_cast<std::size_t>(unit)].total();
    out.waiting_peak = std::max(out.waiting_peak, waiting);
  }
  return out;
}

TEST(Gathers, StayWithinTheBudgetAndComeBeforeTheirUse) {
  for (const bool tied : {false, true})
    for (const bool lora : {false, true}) {
      const auto spec = tiny(tied, lora);
      const auto units = gathered(spec);
      std::int64_t largest = 0;
      for (const auto& u : units) largest = std::max(largest, u.total());
      const auto list = training_actions(spec, {2, true}, {3, 3});
      for (const std::int64_t prefetch_budget : {std::int64_t{1}, largest, 2 * largest, 100 * largest}) {
        const auto result = simulate(insert_prefetches(list, units, prefetch_budget), units);
        EXPECT_EQ(result.late, 0);
        EXPECT_LE(result.waiting_peak, std::max(prefetch_budget, largest)) << prefetch_budget;
      }
    }
}

TEST(Gathers, BreadthFirstGathersOncePerPass) {
  const auto spec = tiny(false, true);
  const auto units = gathered(spec);
  const auto bytes = [&](int group) {
    return simulate(insert_prefetches(training_actions(spec, {group, true}, {8, 8}), units, 1), units).bytes;
  };
  // Between groups nothing changes except the units that the prefetch budget keeps at the turn from one group to the next.
  EXPECT_EQ(bytes(1), 8 * bytes(8));
}

TEST(Gathers, ATiedEmbeddingComesOnceForTheFirstBlockAndTheHead) {
  for (const bool lora : {false, true}) {
    const auto spec = tiny(true, lora);
    const auto units = gathered(spec);
    const auto gathers = [&](const ActionList& list) {
      return std::ranges::count_if(insert_prefetches(list, units, 1), [](const Action& a) {
        return (a.kind == ActionKind::gather || a.kind == ActionKind::gather_frozen) && a.target == 0;
      });
    };
    constexpr int kGroups = 3;
    // One more: with LoRA the next step's; in full training the block at which gradients end, which a group shares with the start
    // of the next one.
    EXPECT_EQ(gathers(training_actions(spec, {1, true}, {kGroups, kGroups})), kGroups + 1);
    EXPECT_EQ(gathers(evaluation_actions(spec, {1}, {kGroups, kGroups})), 1) << "the head's is the next group's first";
  }
}

TEST(Gathers, WhatEveryRankHoldsIsLeftAlone) {
  const auto spec = tiny(true, false);
  const auto list = training_actions(spec, {1, true}, {2, 2});
  EXPECT_EQ(insert_prefetches(list, std::vector<GatheredBytes>(spec.units.size()), 1), list);
}

TEST(Gathers, TheNextStepsEmbeddingSetsOutDuringTheLastBackward) {
  const auto spec = tiny(true, true);
  const auto units = gathered(spec);
  const auto list = insert_prefetches(training_actions(spec, {2, true}, {2, 2}), units, units[0].total() + units[1].total());
  const auto place = [&](ActionKind kind, int target) {
    return std::find_if(list.begin(), list.end(), [&](const Action& a) { return a.kind == kind && a.target == target; });
  };
  EXPECT_LT(place(ActionKind::gather_frozen, 0), place(ActionKind::backward, 1));
  // Layer 0 is in use until then; it is gathered again after its release.
  EXPECT_GT(place(ActionKind::gather_frozen, 1),
            std::find(place(ActionKind::backward, 1), list.end(), Action{ActionKind::release, 1}));
}

TEST(Gathers, AllFrozenWeightsWithinTheBudgetSetOutForTheNextStep) {
  const auto prepared = [](const model::ModelSpec& spec) {
    std::set<int> units;
    for (const Action& a : insert_prefetches(training_actions(spec, {2, true}, {2, 2}), gathered(spec), std::int64_t{1} << 40))
      if (a.kind == ActionKind::gather_frozen) {
        EXPECT_TRUE(units.insert(a.target).second) << a.target;
      }
    return units;
  };
  EXPECT_EQ(prepared(tiny(false, true)), (std::set<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(prepared(tiny(false, false)), std::set<int>());
}

TEST(Schedule, BreadthFirstAcquiresEachUnitOncePerPassAndGroup) {
  const auto spec = tiny(false, true);
  const auto acquires = [&](int group) {
    int n = 0;
    for (const Action& a : training_actions(spec, {group, false}, {8, 8})) n += a.kind == ActionKind::acquire;
    return n;
  };
  EXPECT_EQ(acquires(1), 8 * acquires(8));
}

TEST(Schedule, RanksWithDifferentWorkIssueTheSameCollectives) {
  const auto spec = tiny(true, false);
  const auto collectives = [&](int micros) {
    ActionList kept;
    for (const Action& a : training_actions(spec, {2, true}, {micros, 3}))
      if (a.micro < 0) kept.push_back(a);
    return kept;
  };
  EXPECT_EQ(collectives(0), collectives(3));
  EXPECT_EQ(collectives(1), collectives(2));
}

TEST(Schedule, NothingFlowsBelowTheLowestTrainableBlock) {
  const auto spec = tiny(false, true);  // LoRA: the embedding is frozen
  for (const Action& a : training_actions(spec, {1, false}, {2, 2})) EXPECT_FALSE(a.kind == ActionKind::backward && a.target == 0);
}

}  // namespace
}  // namespace qft::parallel
