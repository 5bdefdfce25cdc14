// Ranks that share matrices answer many requests together, also if one of them has less room, or cannot take an answer.
#include "qft/core/error.h"
#include "qft/infer/answer_all.h"
#include "qft/selftest/small_run.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "support/device_under_test.h"
#include "support/world.h"
#include <gtest/gtest.h>

namespace qft::infer {
namespace {

using Answers = std::map<std::size_t, std::vector<std::int32_t>>;

/// Seven requests of different lengths.
struct Questions {
  std::vector<std::vector<std::int32_t>> prompts;
  std::vector<Request> requests;

  Questions() {
    for (int i = 0; i < 7; ++i) prompts.push_back(selftest::small_tokens(20 + i, 2 + i * 5 % 7));
    for (std::size_t i = 0; i < prompts.size(); ++i) requests.push_back({prompts[i], 3 + static_cast<std::int64_t>(i) % 4, i});
  }
};

config::RunConfig greedy_config(std::int64_t slots) {
  config::RunConfig config;
  config.generate.do_sample = false;
  config.training.per_device_eval_batch_size = slots;
  return config;
}

selftest::SmallCase small_case(int tensor_ranks) {
  return {.tensor_ranks = tensor_ranks, .precision = optim::Precision::fp32()};
}

Answers answers_of(comm::Communicator& comm, c10::Device device, std::int64_t slots) {
  const Questions questions;
  selftest::SmallRun run(small_case(comm.size()), comm, device);
  Answers answers;
  answer_all(run.instance(), questions.requests, greedy_config(slots), {}, comm,
             [&](std::size_t i, const auto& a) { answers[i] = a.ids; });
  return answers;
}

/// Each rank has room for another number of sequences.
TEST(AnswerAll, TensorRanksAgreeOnTheSequencesInFlight) {
  const auto self = comm::make_self_communicator();
  const Answers want = answers_of(*self, c10::kCPU, 1);
  EXPECT_EQ(answers_of(world(), test::device_under_test(), 1 + world().rank()), want);
  EXPECT_EQ(answers_of(world(), test::device_under_test(), 4 - world().rank()), want);
}

TEST(AnswerAll, EndsOnAllTensorRanksIfOneCannotTakeAnAnswer) {
  const Questions questions;
  selftest::SmallRun run(small_case(world().size()), world(), test::device_under_test());
  for (int bad = 0; bad < world().size(); ++bad) {
    int taken = 0;
    const auto take = [&](std::size_t, const auto&) {
      if (++taken == 2 && world().rank() == bad) fail("the disk is full");
    };
    std::string message;
    try {
      answer_all(run.instance(), questions.requests, greedy_config(2), {}, world(), take);
    } catch (const Error& e) {
      message = e.what();
    }
    EXPECT_EQ(message, fmt::format("on rank {}: the disk is full", bad));
    EXPECT_LT(taken, 4) << "the others end with it";
  }
}

}  // namespace
}  // namespace qft::infer
