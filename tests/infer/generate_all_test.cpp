#include "qft/core/error.h"
#include "qft/infer/generator.h"

#include <map>

#include "infer/tiny_decoder.h"
#include <gtest/gtest.h>

namespace qft::infer {
namespace {

using testing::tiny_cases;
using testing::tiny_tokens;
using testing::TinyModel;

const std::vector<std::int32_t> kStops = {7, 11, 30, 41};

struct Job {
  std::vector<std::int32_t> prompt;
  std::int64_t limit;
};

std::vector<Job> jobs() {
  std::vector<Job> all;
  for (int i = 0; i < 23; ++i) all.push_back({tiny_tokens(i, 1 + i * 7 % 17), 1 + i * 5 % 13});
  return all;
}

/// Generates one answer alone, token by token: the reference for all other ways.
Answer one_by_one(TinyModel& model, const Job& job, SamplerOptions options, std::uint64_t stream) {
  options.stream = stream;
  Sampler sampler(options);
  const auto decoder = model.decoder(40, 1);
  Answer answer;
  std::vector<std::int32_t> context = job.prompt;
  at::Tensor logits = decoder->forward(job.prompt);
  while (static_cast<std::int64_t>(answer.ids.size()) < job.limit) {
    const auto id = sampler.next({logits.data_ptr<float>(), static_cast<std::size_t>(logits.numel())}, context);
    if (std::ranges::find(kStops, id) != kStops.end()) {
      answer.stop = id;
      break;
    }
    answer.ids.push_back(id);
    context.push_back(id);
    if (static_cast<std::int64_t>(answer.ids.size()) < job.limit) logits = decoder->forward(std::span(context).last(1));
  }
  return answer;
}

TEST(GenerateAll, AnswersDoNotDependOnTheNumberOfSlots) {
  const auto all = jobs();
  for (const auto& c : tiny_cases())
    for (const SamplerOptions& options : {SamplerOptions{.greedy = true, .repetition_penalty = 1.2},
                                          SamplerOptions{.temperature = 1.5, .top_k = 20, .seed = 9}}) {
      TinyModel model(c);
      std::vector<Answer> expected;
      std::vector<Request> requests;
      for (std::size_t i = 0; i < all.size(); ++i) {
        expected.push_back(one_by_one(model, all[i], options, 100 + i));
        requests.push_back({all[i].prompt, all[i].limit, 100 + i});
      }
      const auto stopped = std::ranges::count_if(expected, [](const Answer& a) { return a.stop >= 0; });
      EXPECT_GT(stopped, 0) << "some answers end at a stop token";
      EXPECT_LT(stopped, static_cast<std::ptrdiff_t>(all.size())) << "and some at their limit";
      for (const std::size_t slots : {1, 2, 5, 8, 13}) {
        const auto decoder = model.decoder(40, slots);
        std::map<std::size_t, Answer> got;
        generate_all(*decoder, options, requests, kStops, [&](std::size_t i, const Answer& a) {
          EXPECT_TRUE(got.emplace(i, a).second) << "request " << i << " is answered once";
        });
        ASSERT_EQ(got.size(), all.size());
        for (std::size_t i = 0; i < all.size(); ++i) {
          EXPECT_EQ(got[i].ids, expected[i].ids) << slots << " slots, request " << i;
          EXPECT_EQ(got[i].stop, expected[i].stop) << slots << " slots, request " << i;
        }
      }
    }
}

TEST(GenerateAll, NothingToDoIsDone) {
  TinyModel model(tiny_cases().front());
  const auto decoder = model.decoder(8, 3);
  generate_all(*decoder, {.greedy = true}, {}, kStops, [](std::size_t, const Answer&) { FAIL(); });
}

TEST(AnswerLimit, IsMaxNewTokensOrWhatMaxLengthLeaves) {
  config::GenerateArgs args;
  args.max_new_tokens = 5;
  args.max_length = 10;
  EXPECT_EQ(answer_limit(args, 512, 100).tokens, 5);
  args.max_new_tokens = 0;
  EXPECT_EQ(answer_limit(args, 512, 7).tokens, 3);
  EXPECT_THROW(answer_limit(args, 512, 10), ConfigError);
}

TEST(AnswerLimit, EndsAtTheModelsPositions) {
  config::GenerateArgs args;
  args.max_new_tokens = 5;
  EXPECT_FALSE(answer_limit(args, 105, 100).shortened);
  EXPECT_EQ(answer_limit(args, 104, 100).tokens, 4);
  EXPECT_TRUE(answer_limit(args, 104, 100).shortened);
  args.max_new_tokens = 0;
  args.max_length = 200;
  EXPECT_EQ(answer_limit(args, 104, 100).tokens, 4);
  try {
    answer_limit(args, 99, 100);
    FAIL();
  } catch (const ConfigError& e) {
    EXPECT_NE(std::string(e.what()).find("has 100 tokens, but the model has 99 positions"), std::string::npos) << e.what();
  }
}

TEST(SamplerOptions, AtTemperatureZeroTakeTheMostProbableToken) {
  config::RunConfig config;
  EXPECT_FALSE(sampler_options(config).greedy);
  config.generate.temperature = 0.0;
  EXPECT_TRUE(sampler_options(config).greedy);
}

}  // namespace
}  // namespace qft::infer
