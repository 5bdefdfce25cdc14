// Degrees of tensor and context parallelism, and a configuration against the ranks of a job.
#include "qft/config/run_config.h"

#include <regex>
#include <string>

#include "config_files.h"

namespace qft::config {
namespace {

RunConfig with_degrees(int tensor, int context, const std::string& more = "") {
  return load_text(fmt::format("tensor_parallel: {}\ncontext_parallel: {}\n{}", tensor, context, more));
}

TEST(Degrees, DefaultToOne) {
  const RunConfig c = load_text("");
  EXPECT_EQ(c.parallel.tensor_parallel, 1);
  EXPECT_EQ(c.parallel.context_parallel, 1);
  EXPECT_EQ(c.data_ranks(7), 7);
}

TEST(Degrees, DivideTheRanks) {
  const RunConfig c = with_degrees(2, 3);
  EXPECT_EQ(c.parallel.ranks_of_a_data_rank(), 6);
  EXPECT_EQ(c.data_ranks(6), 1);
  EXPECT_EQ(c.data_ranks(24), 4);
  EXPECT_NO_THROW(c.check_world(12));
}

TEST(Degrees, AreIntegersOfAtLeastOne) {
  for (const char* key : {"tensor_parallel", "context_parallel"})
    for (const char* value : {"0", "-2", "1.5", "two", "true", "2000000", "[2]"}) {
      const std::string error = error_of([&] { load_text(fmt::format("{}: {}\n", key, value)); });
      EXPECT_CONTAINS(error, fmt::format("run.yaml:1: {}: expected ", key)) << value;
    }
}

TEST(Degrees, ThatDoNotFitComeWithSmallerOnesThatDo) {
  EXPECT_EQ(
      error_of([] { with_degrees(3, 1).check_world(8); }),
      "run.yaml:1: tensor_parallel is 3: 3 ranks compute the same samples, but the job has 8 ranks, not a multiple of 3: start 6 "
      "or 9 ranks, or set tensor_parallel to 1 (qft plan FILE --ranks 8 tensor_parallel=1 context_parallel=1 lists the "
      "degrees that the model allows)");
  EXPECT_CONTAINS(error_of([] { with_degrees(8, 1).check_world(12); }), "set tensor_parallel to 4 (");
  EXPECT_CONTAINS(error_of([] { with_degrees(4, 1).check_world(2); }), "start 4 ranks, or set tensor_parallel to 2");
  EXPECT_CONTAINS(error_of([] { with_degrees(2, 4).check_world(4); }),
                  "start 8 ranks, or set tensor_parallel to 1, or context_parallel to 2");
  EXPECT_CONTAINS(error_of([] { with_degrees(3, 5).check_world(8); }),
                  "start 15 ranks, or set tensor_parallel to 1 and context_parallel to 1 (");
  EXPECT_CONTAINS(error_of([] { with_degrees(4, 4).check_world(6); }),
                  "run.yaml:1: tensor_parallel is 4 and run.yaml:2: context_parallel is 4: 16 ranks compute the same samples");
  EXPECT_CONTAINS(
      error_of([] { load_text("context_parallel: 3\n").data_ranks(1); }),
      "run.yaml:1: context_parallel is 3: 3 ranks compute the same samples, but the job has 1 rank, not a multiple of 3: start 3 "
      "ranks, or set context_parallel to 1");
}

/// Every suggestion is a way out.
TEST(Degrees, SuggestionsFit) {
  for (int ranks = 1; ranks <= 24; ++ranks)
    for (int tensor = 1; tensor <= 12; ++tensor)
      for (int context = 1; context <= 4; ++context) {
        if (ranks % (tensor * context) == 0) continue;
        const std::string error = error_of([&] { with_degrees(tensor, context).check_world(ranks); });
        std::smatch found;
        ASSERT_TRUE(std::regex_search(error, found,
                                      std::regex("set (tensor|context)_parallel to (\\d+)( and context_parallel to (\\d+))?")))
            << error;
        const bool of_tensor = found[1] == "tensor";
        const int degree = std::stoi(found[2]);
        const int other = found[4].matched ? std::stoi(found[4]) : of_tensor ? context : tensor;
        EXPECT_EQ(ranks % (degree * other), 0) << error;
        EXPECT_EQ((of_tensor ? tensor : context) % degree, 0) << error;
      }
}

TEST(Degrees, TheGlobalBatchCountsDataRanks) {
  RunConfig c = with_degrees(2, 2, "per_device_train_batch_size: 3\ngradient_accumulation_steps: 2\n");
  c.world_claims.push_back({WorldClaim::Kind::global_batch, 12, "x"});
  EXPECT_NO_THROW(c.check_world(8));
  EXPECT_CONTAINS(error_of([&] { c.check_world(4); }),
                  "x is 12, but a step has 6 samples (per_device_train_batch_size 3 * gradient_accumulation_steps 2 * 1 data "
                  "rank (4 ranks / tensor_parallel 2 / context_parallel 2), or global_batch_size)");
}

TEST(Degrees, ClaimsOfDataRanksAndWholeMicroBatches) {
  RunConfig c = with_degrees(2, 1, "per_device_train_batch_size: 2\nglobal_batch_size: 8\n");
  c.world_claims.push_back({WorldClaim::Kind::data_ranks, 2, "x"});
  EXPECT_NO_THROW(c.check_world(4));
  EXPECT_CONTAINS(error_of([&] { c.check_world(6); }), "x is 2, but the job has 3 data ranks (6 ranks / ");
  EXPECT_CONTAINS(error_of([&] { c.check_world(6); }), "start with mpirun -np 4");
  c.world_claims = {{WorldClaim::Kind::whole_micro_batches, 8, "y"}};
  EXPECT_NO_THROW(c.check_world(8));
  EXPECT_CONTAINS(error_of([&] { c.check_world(6); }),
                  "y is 8, which is not a multiple of micro-batch 2 x 3 data ranks (6 ranks");
  EXPECT_CONTAINS(error_of([&] { c.check_world(6); }), "= 6: set it to 6 or 12, or start another number of ranks");
  EXPECT_CONTAINS(error_of([&] { c.check_world(20); }), "= 20: set it to 20, or start");
}

TEST(Degrees, SayWhatADataRankIs) {
  EXPECT_STREQ(with_degrees(1, 1).parallel.data_rank_noun(), "rank");
  EXPECT_STREQ(with_degrees(2, 1).parallel.data_rank_noun(), "data rank");
  RunConfig c = with_degrees(1, 1);
  c.world_claims = {{WorldClaim::Kind::data_ranks, 2, "x"}};
  EXPECT_CONTAINS(error_of([&] { c.check_world(3); }), "x is 2, but the job has 3 ranks: start");
}

TEST(Degrees, OfAProgramThatIsOneProcessAreOne) {
  RunConfig c = with_degrees(2, 1);
  c.world_claims = {{WorldClaim::Kind::data_ranks, 4, "x"}};
  c.run_as_one_process();
  EXPECT_EQ(c.parallel.tensor_parallel, 1);
  EXPECT_CONTAINS(c.notes.back(), "run.yaml:1: tensor_parallel is 2, but one process runs here: tensor_parallel 1 is used");
  EXPECT_NO_THROW(c.check_world(1));
  const std::size_t notes = c.notes.size();
  c.run_as_one_process();
  EXPECT_EQ(c.notes.size(), notes) << "nothing to say";
}

TEST(Degrees, OfContextExcludeSumsInAFixedOrder) {
  EXPECT_CONTAINS(error_of([] { load_text("deterministic: true\ncontext_parallel: 2\n"); }),
                  "run.yaml:1: deterministic and run.yaml:2: context_parallel exclude each other");
  EXPECT_NO_THROW(load_text("deterministic: true\ntensor_parallel: 2\n"));
}

}  // namespace
}  // namespace qft::config
