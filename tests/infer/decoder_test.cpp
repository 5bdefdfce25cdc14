#include "qft/core/error.h"

#include "infer/tiny_decoder.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/max.h>
#include <gtest/gtest.h>

namespace qft::infer {
namespace {

using testing::tiny_cases;
using testing::tiny_tokens;
using testing::TinyModel;

/// Returns the logits after the prompt's last token and after each later token, for one sequence alone in a decoder.
std::vector<at::Tensor> alone(TinyModel& model, std::span<const std::int32_t> tokens, std::size_t prompt) {
  const auto decoder = model.decoder(64, 1);
  std::vector<at::Tensor> logits = {decoder->forward(tokens.first(prompt)).clone()};
  for (std::size_t t = prompt; t < tokens.size(); ++t) logits.push_back(decoder->forward(tokens.subspan(t, 1)).clone());
  return logits;
}

TEST(Decoder, ManySequencesTogetherHaveTheLogitsOfEachAlone) {
  constexpr std::size_t kSequences = 12;  // more than one product takes
  for (const auto& c : tiny_cases()) {
    TinyModel model(c);
    std::vector<std::vector<std::int32_t>> tokens;
    std::vector<std::vector<at::Tensor>> expected;
    std::vector<std::size_t> prompt, fed(kSequences, 0);
    for (int s = 0; s < static_cast<int>(kSequences); ++s) {
      prompt.push_back(static_cast<std::size_t>(1 + s * 5 % 11));
      tokens.push_back(tiny_tokens(s, static_cast<int>(prompt.back()) + 4 + s % 3));
      expected.push_back(alone(model, tokens.back(), prompt.back()));
    }
    // Sequence s joins at step s / 2 and leaves after its last token, so that calls mix prompts and single tokens.
    const auto decoder = model.decoder(64, kSequences);
    for (std::size_t step = 0; step < 16; ++step) {
      std::vector<Decoder::Input> inputs;
      for (std::size_t s = 0; s < std::min(kSequences, 2 * step + 2); ++s) {
        if (fed[s] == tokens[s].size()) continue;
        const std::size_t count = fed[s] == 0 ? prompt[s] : 1;
        inputs.push_back({s, std::span(tokens[s]).subspan(fed[s], count)});
      }
      if (inputs.empty()) break;
      const at::Tensor logits = decoder->forward(inputs);
      ASSERT_EQ(logits.size(0), static_cast<std::int64_t>(inputs.size()));
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        const std::size_t s = inputs[i].slot;
        const at::Tensor& one = expected[s][fed[s] == 0 ? 0 : fed[s] - prompt[s] + 1];
        EXPECT_TRUE(at::equal(logits[static_cast<std::int64_t>(i)], one)) << "sequence " << s << " after " << fed[s] << " tokens";
        fed[s] += inputs[i].tokens.size();
      }
    }
    EXPECT_TRUE(std::ranges::equal(fed, tokens, {}, {}, [](const auto& t) { return t.size(); })) << "all tokens were fed";
  }
}

TEST(Decoder, AgreesInFp64ToTheLastDigits) {
  TinyModel model(selftest::SmallCase{});  // LibTorch's products: the order of summation may depend on the other rows
  const auto a = tiny_tokens(1, 9), b = tiny_tokens(2, 6);
  const auto first = alone(model, a, 8), second = alone(model, b, 5);
  const auto decoder = model.decoder(16, 2);
  const Decoder::Input prompts[] = {{1, std::span(b).first(5)}, {0, std::span(a).first(8)}},
                       last[] = {{0, std::span(a).last(1)}, {1, std::span(b).last(1)}};
  const auto worst = [](const at::Tensor& x, const at::Tensor& y) { return at::max((x - y).abs()).item<double>(); };
  const at::Tensor logits = decoder->forward(prompts).clone();
  EXPECT_LT(worst(logits[0], second[0]), 1e-5);
  EXPECT_LT(worst(logits[1], first[0]), 1e-5);
  const at::Tensor next = decoder->forward(last);
  EXPECT_LT(worst(next[0], first[1]), 1e-5);
  EXPECT_LT(worst(next[1], second[1]), 1e-5);
}

TEST(Decoder, ATokenAtATimeIsTheSameAsAllAtOnce) {
  for (const auto& c : tiny_cases()) {
    // Cached keys keep their rotation, but dynamic scaling would rotate the whole sequence differently.
    if (c.precision.compute != at::kFloat || c.dynamic_positions > 0) continue;
    TinyModel model(c);
    const auto tokens = tiny_tokens(7, 20);
    const auto one = alone(model, tokens, 1), all = alone(model, tokens, 20);
    EXPECT_LT(at::max((one.back() - all.back()).abs()).item<double>(), 1e-5);
  }
}

TEST(Decoder, KeysStayAsTheLengthBeforeRotatedThem) {
  TinyModel model(tiny_cases().back());
  const auto tokens = tiny_tokens(7, 20);
  const auto same = [&](std::size_t length) {
    const auto one = alone(model, std::span(tokens).first(length), 1),
               all = alone(model, std::span(tokens).first(length), length);
    return at::max((one.back() - all.back()).abs()).item<double>() < 1e-5;
  };
  EXPECT_TRUE(same(8));
  EXPECT_FALSE(same(9));
  EXPECT_FALSE(same(20));
}

TEST(Decoder, RefusesWhatItsCacheCannotHold) {
  TinyModel model(tiny_cases().front());
  const auto decoder = model.decoder(8, 2);
  const auto tokens = tiny_tokens(1, 9);
  EXPECT_THROW(decoder->forward(tokens), Error);
  decoder->forward(std::span(tokens).first(8));
  EXPECT_THROW(decoder->forward(std::span(tokens).first(1)), Error);
  decoder->sequence().truncate(7);
  EXPECT_NO_THROW(decoder->forward(std::span(tokens).first(1)));
}

}  // namespace
}  // namespace qft::infer
