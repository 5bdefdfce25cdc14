// Ranks that share matrices answer as one rank does.
#include "qft/infer/decoder.h"
#include "qft/selftest/small_run.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "support/device_under_test.h"
#include "support/world.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/argmax.h>
#include <gtest/gtest.h>

namespace qft::infer {
namespace {

constexpr std::int64_t kPrompt = 9, kAnswer = 200;

/// The answer to a prompt, and the logits of each of its tokens.
struct GreedyAnswer {
  std::vector<std::int32_t> tokens;
  std::vector<at::Tensor> logits;
};

GreedyAnswer greedy(const selftest::SmallCase& c, comm::Communicator& comm, c10::Device device) {
  selftest::SmallRun run(c, comm, device);
  Decoder decoder(run.instance(), kPrompt + kAnswer);
  std::vector<std::int32_t> next = selftest::small_tokens(3, kPrompt);
  GreedyAnswer answer;
  while (std::ssize(answer.tokens) < kAnswer) {
    answer.logits.push_back(decoder.forward(next).clone());
    next = {static_cast<std::int32_t>(at::argmax(answer.logits.back()).item<std::int64_t>())};
    answer.tokens.push_back(next.front());
  }
  return answer;
}

/// `degree`: the ranks that all are of.
void compare(selftest::SmallCase c, const char* name, int selftest::SmallCase::* degree = &selftest::SmallCase::tensor_ranks) {
  SCOPED_TRACE(name);
  c.precision = optim::Precision::fp32();
  const auto self = comm::make_self_communicator();
  const GreedyAnswer want = greedy(c, *self, c10::kCPU);
  c.*degree = world().size();
  const GreedyAnswer got = greedy(c, world(), test::device_under_test());
  EXPECT_EQ(got.tokens, want.tokens);
  double most = 0.0;
  for (std::size_t t = 0; t < want.logits.size(); ++t)
    most = std::max(most, (got.logits[t] - want.logits[t]).abs().max().item<double>());
  EXPECT_LT(most, 1e-3);
}

TEST(Decoder, OfTensorRanksGivesTheAnswersOfOneRank) {
  compare({}, "tied");
  compare({.model_type = "qwen3", .tied = false}, "norms of heads");
  compare({.model_type = "qwen2_moe", .tied = false}, "experts");
  if (world().size() == 2) compare({.model_type = "qwen3_5_text"}, "gates, delta nets");
}

/// Each decodes whole sequences with all heads.
TEST(Decoder, OfContextRanksGivesTheAnswersOfOneRank) {
  compare({.model_type = "qwen3", .tied = false}, "norms of heads", &selftest::SmallCase::context_ranks);
  compare({.model_type = "qwen3_5_text"}, "gates, delta nets", &selftest::SmallCase::context_ranks);
}

}  // namespace
}  // namespace qft::infer
