// Other types, optimizers and summation orders, and step results: any number of ranks gives the numbers of one rank.
#include <cmath>
#include <string>
#include <utility>

#include "equivalence.h"

namespace qft::parallel::testing {
namespace {

/// Lion's state is element-wise; Muon assigns matrices to an owner, Adafactor all parameters.
TEST(Equivalence, Fp64OfOtherOptimizersWhereverTheirStateIs) {
  constexpr std::pair<bool, const char*> kRuns[] = {
      {false, "lion"}, {true, "lion"}, {false, "muon"}, {true, "muon"}, {false, "adafactor"}};
  for (std::size_t r = 0; r < std::size(kRuns); ++r) {
    const auto [lora, optim] = kRuns[r];
    Case c{.model_type = "llama", .lora = lora, .group = 2, .hsdp_group = hsdp_group(), .optim = optim, .learning_rate = 1e-3};
    const Reference expected = reference(c, 4);
    constexpr Offload kOffloads[] = {{}, {.optimizer = true}, {true, true, false}};
    for (std::size_t s = 0; s < std::size(kStrategies); ++s)
      for (std::size_t o = 0; o < std::size(kOffloads); ++o) {
        if (is_another_counts(kStrategies[s], r + s + o)) continue;
        c.strategy = kStrategies[s];
        c.offload = kOffloads[o];
        SCOPED_TRACE(name_of(c, 2) + " " + optim);
        expect_same(c, 2, expected, 1e-10, 1e-10);
      }
  }
}

/// Runs three steps with an adapter that reads the weights it wraps, which lie in slices or in host memory.
void expect_same_wherever_weights_are(Case c, std::size_t index) {
  const Reference expected = reference(c, 3);
  for (std::size_t s = 0; s < std::size(kStrategies); ++s)
    for (const bool offload : {false, true}) {
      if ((s == 0 && offload) || is_another_counts(kStrategies[s], index + s + offload)) continue;
      c.strategy = kStrategies[s];
      c.offload = {offload, offload, false};
      SCOPED_TRACE(name_of(c, 2) + (c.oft ? " OFT" : c.dora ? " DoRA" : ""));
      expect_same(c, 2, expected, 1e-10, 1e-7);
    }
}

TEST(Equivalence, DoraHasItsNormsWhereverItsWeightsAre) {
  for (const bool drops : {false, true})
    expect_same_wherever_weights_are(
        {.lora = true, .recompute = drops, .dropout = drops ? 0.3 : 0.0, .group = 2, .hsdp_group = hsdp_group(), .dora = true},
        drops);
}

/// Also with fully trained embeddings and norms, and in a model with experts and delta nets.
TEST(Equivalence, OftHasItsRotationsWhereverItsWeightsAre) {
  constexpr const char* kTypes[] = {"qwen3", "qwen3_5_text", "qwen2_moe"};
  for (std::size_t type = 0; type < std::size(kTypes); ++type)
    expect_same_wherever_weights_are({.model_type = kTypes[type],
                                      .lora = true,
                                      .recompute = type > 0,
                                      .parts = type == 0,
                                      .group = 2,
                                      .hsdp_group = hsdp_group(),
                                      .oft = true},
                                     type);
}

/// Each sequence gets the angles of its own length, regardless of its neighbours: alone, in pairs, all in one micro-batch.
TEST(Equivalence, DynamicRopeFollowsEachSequenceAlone) {
  for (const char* model_type : {"qwen2", "llama"}) {
    Case c{.model_type = model_type, .dynamic_positions = 8, .hsdp_group = hsdp_group()};
    const Reference expected = reference(c), plain = reference({.model_type = model_type});
    EXPECT_GT(std::abs(plain.steps[0].loss - expected.steps[0].loss), 1e-6 * plain.steps[0].loss);
    constexpr const char* kWhole[] = {"ddp", "zero1", "zero3"};
    constexpr std::pair<int, int> kPacksAndGroups[] = {{1, 9}, {2, 2}, {9, 1}};
    for (std::size_t s = 0; s < std::size(kWhole); ++s)
      for (std::size_t p = 0; p < std::size(kPacksAndGroups); ++p)
        for (const bool recompute : {false, true}) {
          if (is_another_counts(kWhole[s], s + p + recompute)) continue;
          const auto [pack, group] = kPacksAndGroups[p];
          c.strategy = kWhole[s];
          c.recompute = recompute;
          c.group = group;
          SCOPED_TRACE(name_of(c, pack));
          expect_same(c, pack, expected, 1e-10, 1e-10);
        }
  }
}

TEST(Equivalence, Fp32StaysWithin1e5For20Steps) {
  for (const bool lora : {false, true}) {
    Case c{.lora = lora,
           .group = lora ? 3 : 1,
           .hsdp_group = hsdp_group(),
           .precision = optim::Precision::fp32(),
           .learning_rate = 1e-3};
    const Reference expected = reference(c, 20);
    for (std::size_t s = 0; s < std::size(kStrategies); ++s) {
      if (is_another_counts(kStrategies[s], s + lora)) continue;
      c.strategy = kStrategies[s];
      c.offload.weights = lora;
      SCOPED_TRACE(name_of(c, 2));
      expect_same(c, 2, expected, 1e-5, 1e-3);
    }
  }
}

TEST(Equivalence, HalfTypesStayWithinTheirRounding) {
  struct Half {
    optim::Precision precision;
    double loss_scale;
  };
  for (const Half& half :
       {Half{optim::Precision::bf16(), 1.0}, {optim::Precision::pure_bf16(), 1.0}, {optim::Precision::fp16(), 1024.0}})
    for (const char* strategy : {"ddp", "zero1", "zero3"}) {
      const Case c{.strategy = strategy, .precision = half.precision, .loss_scale = half.loss_scale};
      SCOPED_TRACE(name_of(c, 2) + " " + c10::toString(half.precision.compute));
      const Reference expected = reference({});
      TinyRun run(c, comm::Session::current().world());
      // fp16 has three bits more than bf16.
      const double tolerance = half.precision.compute == at::kHalf ? 0.005 : 0.03;
      for (int s = 0; s < kSteps; ++s) {
        const auto got = run.step(s, 2);
        const auto& want = expected.steps[static_cast<std::size_t>(s)];
        EXPECT_NEAR(got.loss, want.loss, tolerance) << "step " << s;
        EXPECT_NEAR(got.grad_norm, want.grad_norm, 2 * tolerance * want.grad_norm);
      }
    }
}

/// All strategies in fp32 and bf16, in which any change of order shows.
TEST(Deterministic, TheBitsOfOneRankOnAnyNumberOfRanks) {
  const auto self = comm::make_self_communicator();
  for (const optim::Precision& precision : {optim::Precision::fp32(), optim::Precision::bf16(), optim::Precision::pure_bf16()})
    for (const bool lora : {false, true}) {
      const Case c{.lora = lora, .recompute = lora, .dropout = 0.3, .precision = precision, .deterministic = true};
      for (const int pack : {1, 2, 9}) {  // nine, five and one micro-batches
        SCOPED_TRACE(name_of(c, pack) + " " + c10::toString(precision.compute));
        TinyRun one(c, *self), ours(c, comm::Session::current().world());
        for (int s = 0; s < 4; ++s) {
          const auto want = one.step(s, pack), got = ours.step(s, pack);
          EXPECT_EQ(got.loss, want.loss) << "step " << s;
          EXPECT_EQ(got.grad_norm, want.grad_norm) << "step " << s;
        }
        EXPECT_EQ(ours.weights(), one.weights());
      }
    }
}

TEST(Deterministic, IsTheSumThatIsTakenElsewhere) {
  const Case c{.hsdp_group = 1};
  Case d = c;
  d.deterministic = true;
  expect_same(d, 2, reference(c), 1e-10, 1e-7);
}

TEST(LossScale, ThatIsTooLargeShowsOnEveryRank) {
  for (const char* strategy : {"ddp", "zero2", "zero3"}) {
    TinyRun run({.strategy = strategy, .precision = optim::Precision::fp16(), .loss_scale = 0x1p40},
                comm::Session::current().world());
    const auto before = run.weights();
    // With nine sequences in one micro-batch only the rank with work can find it.
    EXPECT_FALSE(run.step(0, 9).finite) << strategy;
    EXPECT_EQ(run.weights(), before) << strategy;
  }
}

TEST(Equivalence, DropoutChangesTheNumbers) {
  const auto without = reference({.lora = true}), with = reference({.lora = true, .dropout = 0.3});
  EXPECT_GT(std::abs(without.steps[0].grad_norm - with.steps[0].grad_norm), 1e-6);
}

TEST(Equivalence, NoiseOnTheEmbeddingsChangesTheNumbers) {
  const auto without = reference({}), with = reference({.noise_alpha = 3.0});
  EXPECT_GT(std::abs(without.steps[0].grad_norm - with.steps[0].grad_norm), 1e-6);
}

TEST(Step, IsAskedAfterItsLastMicroBatchWhetherToStop) {
  auto& world = comm::Session::current().world();
  TinyRun run({.lora = true}, world);
  int asked = 0;
  const auto result = run.step(0, 1, [&](bool) { return ++asked, false; });
  EXPECT_FALSE(result.abandoned);
  EXPECT_EQ(asked, (9 + world.size() - 1) / world.size() + 1);
  EXPECT_GT(result.seconds, 0.0);
}

TEST(Step, VotesAreCountedOnAllRanks) {
  auto& world = comm::Session::current().world();
  const Case c{.lora = true};
  const auto spec = make_spec(c);
  model::Transformer transformer(spec, at::kDouble, device_under_test());
  const Groups groups(world, device_under_test(), make_sharding(strategy_of("ddp"), {}, world.size(), 1));
  const auto store = make_replicated_store(spec, c.precision, device_under_test(), groups.copies(), true);
  Executor executor(transformer, *store, groups, {}, {}, {});
  const TokenMeanLoss loss({1.0, 1.0});
  const auto result = executor.train(training_actions(spec, {1, false}, {0, 1}), {}, loss, 0,
                                     [&](bool) { return world.rank() == world.size() - 1; });
  EXPECT_EQ(result.stop_requests, 1);
  EXPECT_FALSE(result.abandoned);
  EXPECT_EQ(result.grad_norm, 0.0);
}

}  // namespace
}  // namespace qft::parallel::testing
