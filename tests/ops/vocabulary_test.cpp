// The head, the embedding and a token-difference head on parts of a vocabulary, against the whole one on one rank.
#include "qft/ops/vocabulary.h"

#include "qft/core/error.h"
#include "qft/ops/embedding.h"
#include "qft/ops/head.h"
#include "qft/ops/value_head.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "ops_support.h"
#include "support/vocabulary_parts.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/topk.h>

namespace qft::ops {
namespace {

using namespace testing;
using test::Tokens;

constexpr std::int64_t kPartTokens = 41, kPartWidth = 24;

/// Even and uneven cuts into 2, 3 and 4 parts.
std::vector<std::vector<std::int64_t>> cuts() {
  std::vector<std::vector<std::int64_t>> all;
  for (const std::int64_t vocabulary : {53, 151})
    for (const std::int64_t parts : {2, 3, 4}) all.push_back(test::even_bounds(vocabulary, parts));
  all.push_back({0, 1, 52, 53});
  return all;
}

std::string text(const std::vector<std::int64_t>& bounds) {
  std::string text = "bounds";
  for (const std::int64_t bound : bounds) text += " " + std::to_string(bound);
  return text;
}

/// A batch, and the results of its head.
struct Batch {
  at::Tensor x, weight, grad;
  HeadLabels labels;
  at::Tensor logprobs, gx, gweight;

  Batch(std::int64_t vocabulary, at::ScalarType dtype, double scale = 0.3) {
    x = randn({kPartTokens, kPartWidth}, dtype, 1), weight = randn({vocabulary, kPartWidth}, dtype, 2, scale);
    std::vector<std::int32_t> rows, targets;
    for (std::int32_t t = 0; t < kPartTokens; t += 2) {
      rows.push_back(t);
      targets.push_back(static_cast<std::int32_t>(t * 31 % vocabulary));
    }
    set_labels(rows, targets);
  }
  void set_labels(const std::vector<std::int32_t>& rows, const std::vector<std::int32_t>& targets) {
    labels = {int32s(rows), int32s(targets)};
    grad = randn({labels.size()}, statistics_dtype(x.scalar_type()), 3);
  }
  void make_results(const at::Tensor& own_weight) {
    logprobs = empty({labels.size()}, grad.scalar_type()), gx = empty(x.sizes(), x.scalar_type());
    gweight = zeros(own_weight.sizes(), grad.scalar_type());
  }
  /// Runs the head; with `separate` in two passes.
  void run(const VocabularyPart& part, const at::Tensor& own_weight, bool separate, std::int64_t chunk_rows = 0,
           const LogitsReader& reader = {}) {
    Workspace scratch((c10::Device(c10::kCPU)));
    make_results(own_weight);
    if (separate) {
      head_forward(x, own_weight, labels, logprobs, scratch, chunk_rows, reader, part);
      head_backward(x, own_weight, labels, grad, gx, gweight, scratch, part);
      return;
    }
    head_forward_backward({.x = x,
                           .weight = own_weight,
                           .labels = labels,
                           .grad_logprobs = grad,
                           .logprobs = logprobs,
                           .gx = gx,
                           .gweight = gweight,
                           .vocabulary = part},
                          scratch, chunk_rows, reader);
  }
};

/// Runs the head on the whole vocabulary and on parts. Compares log-probabilities, the sum of gx, and the rows of gweight.
void compare_parts(const Batch& batch, const std::vector<std::int64_t>& bounds, double limit, std::int64_t chunk_rows = 0) {
  Batch whole = batch;
  whole.run({}, whole.weight, false, chunk_rows);
  for (const bool separate : {false, true}) {
    SCOPED_TRACE(text(bounds) + (separate ? ", two passes" : ", one pass") + " in " + c10::toString(batch.x.scalar_type()));
    std::vector<Batch> parts(bounds.size() - 1, batch);
    test::on_parts(bounds, [&](const VocabularyPart& part, const Tokens& own) {
      parts[static_cast<std::size_t>(part.part)].run(part, own.of(batch.weight), separate, separate ? 0 : chunk_rows);
    });
    at::Tensor gx = zeros(batch.x.sizes(), at::kDouble);
    std::vector<at::Tensor> gweights;
    for (const Batch& part : parts) {
      EXPECT_TRUE(part.logprobs.equal(parts[0].logprobs)) << "all ranks get the same bits";
      gx += part.gx;
      gweights.push_back(part.gweight);
    }
    expect_close(parts[0].logprobs, whole.logprobs, limit, "logprobs");
    expect_close(gx, whole.gx, limit, "gx");
    expect_close(at::cat(gweights), whole.gweight, limit, "gweight");
  }
}

double limit_of(at::ScalarType dtype) {
  return dtype == at::kBFloat16 ? 1e-2 : tolerance(dtype);  // bf16: a part's gx is rounded before the sum
}

TEST(Vocabulary, HeadOnPartsIsTheHeadOnTheWhole) {
  for (const at::ScalarType dtype : kDtypes)
    for (const auto& bounds : cuts()) compare_parts(Batch(bounds.back(), dtype), bounds, limit_of(dtype));
}

TEST(Vocabulary, ChunksOfAFewLabelsGiveTheSame) {
  for (const at::ScalarType dtype : kDtypes) compare_parts(Batch(53, dtype), test::even_bounds(53, 3), limit_of(dtype), 8);
}

TEST(Vocabulary, AllLabelsMayLieInOnePart) {
  for (const at::ScalarType dtype : kDtypes)
    for (const std::int32_t target : {0, 52}) {
      Batch batch(53, dtype);
      batch.set_labels({0, 3, 4, 40}, {target, target, target, target});
      compare_parts(batch, test::even_bounds(53, 4), limit_of(dtype));
    }
}

TEST(Vocabulary, NoLabelsNeedNoReductions) {
  Batch batch(53, at::kFloat);
  batch.set_labels({}, {});
  const int reductions = test::on_parts(test::even_bounds(53, 3), [&](const VocabularyPart& part, const Tokens& own) {
    Batch mine = batch;
    mine.run(part, own.of(batch.weight), false);
    EXPECT_TRUE(mine.gx.eq(0).all().item<bool>() && mine.gweight.eq(0).all().item<bool>());
  });
  EXPECT_EQ(reductions, 0);
}

TEST(Vocabulary, TwoReductionsPerChunk) {
  const Batch batch(151, at::kFloat);  // 21 labels
  for (const auto& [chunk_rows, expected] : {std::pair{std::int64_t{0}, 2}, {std::int64_t{4}, 12}}) {
    const int reductions =
        test::on_parts(test::even_bounds(151, 3), [&, rows = chunk_rows](const VocabularyPart& part, const Tokens& own) {
          Batch mine = batch;
          mine.run(part, own.of(batch.weight), false, rows, {[](const HeadChunk&) { return at::Tensor(); }});
        });
    EXPECT_EQ(reductions, expected) << "also with a reader, which needs the log-probabilities first";
  }
}

/// Parts whose sizes lie on both sides of a step of head_chunk_rows() cut the labels alike, or reductions would not meet.
TEST(Vocabulary, ChunksAreTheSameOnUnevenParts) {
  const std::int64_t vocabulary = 65537, labels = 300;  // 65537 columns: 256 rows; 32768: 512 rows
  const at::Tensor x = randn({labels, 1}, at::kFloat, 1), weight = randn({vocabulary, 1}, at::kFloat, 2);
  std::vector<std::int32_t> rows, targets;
  for (std::int32_t t = 0; t < labels; ++t) rows.push_back(t), targets.push_back(t * 211 % 65537);
  const HeadLabels all{int32s(rows), int32s(targets)};
  const at::Tensor expected = empty({labels}, at::kFloat);
  head_forward(x, weight, all, expected, workspace());
  ASSERT_NE(head_chunk_rows(60000), head_chunk_rows(5537));
  test::on_parts({0, 60000, vocabulary}, [&](const VocabularyPart& part, const Tokens& own) {
    Workspace scratch((c10::Device(c10::kCPU)));
    const at::Tensor logprobs = empty({labels}, at::kFloat);
    head_forward(x, own.of(weight), all, logprobs, scratch, 0, {}, part);
    expect_close(logprobs, expected, 1e-6, "logprobs");
  });
}

/// One token of one part stands far above or below all others.
TEST(Vocabulary, SurvivesExtremeLogits) {
  for (const at::ScalarType dtype : kDtypes)
    for (const double size : {1e4, 1e30, -1e30})
      for (const std::int64_t token : {0, 30}) {
        SCOPED_TRACE(std::to_string(size) + " at " + std::to_string(token) + " in " + c10::toString(dtype));
        Batch batch(53, dtype);
        batch.x.fill_(1.0 / static_cast<double>(kPartWidth));
        batch.weight[token].fill_(size);
        batch.set_labels({0, 5, 7, 9}, {0, 30, 52, 1});
        Batch whole = batch;
        whole.run({}, whole.weight, false);
        std::vector<Batch> parts(3, batch);
        test::on_parts(test::even_bounds(53, 3), [&](const VocabularyPart& part, const Tokens& own) {
          parts[static_cast<std::size_t>(part.part)].run(part, own.of(batch.weight), false);
        });
        std::vector<at::Tensor> gweights;
        for (const Batch& part : parts) {
          expect_close(part.logprobs, whole.logprobs, tolerance(at::kFloat), "logprobs");
          EXPECT_TRUE(part.gx.isfinite().all().item<bool>());
          gweights.push_back(part.gweight);
        }
        EXPECT_LE((at::cat(gweights) - whole.gweight).abs().max().item<double>(), limit_of(dtype));
      }
}

TEST(Vocabulary, ANanOfOnePartReachesAllLogprobs) {
  for (const at::ScalarType dtype : kDtypes) {
    Batch batch(53, dtype);
    batch.weight[40].fill_(std::nan(""));
    test::on_parts(test::even_bounds(53, 3), [&](const VocabularyPart& part, const Tokens& own) {
      Batch mine = batch;
      mine.run(part, own.of(batch.weight), false);
      EXPECT_TRUE(mine.logprobs.isnan().all().item<bool>()) << "part " << part.part;
    });
  }
}

TEST(Vocabulary, RefusesTokensOutsideTheWholeAndPartsThatDoNotFit) {
  const at::Tensor x = randn({3, 8}, at::kFloat, 1), weight = randn({10, 8}, at::kFloat, 2), logprobs = empty({1}, at::kFloat);
  const auto none = [](const at::Tensor&) {};
  const VocabularyPart part{.first = 20, .whole = 30, .part = 2, .parts = 3, .add = none, .maximum = none};
  head_forward(x, weight, {int32s({1}), int32s({29})}, logprobs, workspace(), 0, {}, part);
  EXPECT_THROW(head_forward(x, weight, {int32s({1}), int32s({30})}, logprobs, workspace(), 0, {}, part), Error);
  EXPECT_THROW(head_forward(x, weight, {int32s({1}), int32s({-1})}, logprobs, workspace(), 0, {}, part), Error);
  VocabularyPart beyond = part;
  beyond.first = 21;
  EXPECT_THROW(head_forward(x, weight, {int32s({1}), int32s({3})}, logprobs, workspace(), 0, {}, beyond), Error);
  const at::Tensor y = empty({1, 8}, at::kFloat);
  embedding_forward(int32s({0}), weight, y, part);
  EXPECT_THROW(embedding_forward(int32s({30}), weight, y, part), Error);
  EXPECT_THROW(embedding_forward(int32s({-1}), weight, y, part), Error);
}

/// Reads a chunk of 3 rows over a vocabulary with equal maxima in several parts.
TEST(Vocabulary, ReadersSeeTheWholeVocabulary) {
  for (const at::ScalarType dtype : kDtypes)
    for (const auto& bounds : cuts()) {
      SCOPED_TRACE(text(bounds) + " in " + c10::toString(dtype));
      const std::int64_t vocabulary = bounds.back();
      const at::Tensor logits = randn({3, vocabulary}, dtype, 1, 3.0), reference = randn({3, vocabulary}, dtype, 2, 3.0);
      logits[0].slice(0, 1, vocabulary, 17).fill_(20.0);
      logits[1][vocabulary - 1].fill_(20.0);
      logits[2].fill_(-5.0);
      const at::ScalarType type = statistics_dtype(dtype);
      const auto chunk_of = [&](const VocabularyPart& part, const Tokens& own) {
        return HeadChunk{0,  logits.narrow(1, own.first, own.count),    int32s({0, 1, 2}),
                         {}, reference.narrow(1, own.first, own.count), part};
      };
      const HeadChunk whole = chunk_of({}, {0, vocabulary});
      EXPECT_TRUE(whole.likeliest_tokens().equal(at::argmax(logits, 1)));
      EXPECT_TRUE(whole.log_softmax(reference, type).equal(at::log_softmax(reference, 1, type)));
      EXPECT_EQ(whole.vocabulary.first, 0);
      EXPECT_EQ(whole.vocabulary_size(), vocabulary);
      test::on_parts(bounds, [&](const VocabularyPart& part, const Tokens& own) {
        const HeadChunk chunk = chunk_of(part, own);
        EXPECT_EQ(chunk.vocabulary.first, own.first);
        EXPECT_EQ(chunk.vocabulary_size(), vocabulary);
        EXPECT_TRUE(chunk.likeliest_tokens().equal(at::argmax(logits, 1)));
        for (const std::int64_t count : {1, 20, 500})
          EXPECT_TRUE(
              chunk.largest_logits(count).to(type).equal(std::get<0>(at::topk(logits, std::min(count, vocabulary), 1)).to(type)))
              << count;
        expect_close(chunk.log_softmax(chunk.reference, type), own.of(whole.log_softmax(reference, type).t()).t(),
                     tolerance(type), "log-softmax");
        at::Tensor sums = chunk.logits.to(type).sum(1), maxima = chunk.logits.to(type).amax(1);
        chunk.sum_over_vocabulary(sums);
        chunk.max_over_vocabulary(maxima);
        expect_close(sums, logits.to(type).sum(1), 1e-5, "sums");
        EXPECT_TRUE(maxima.equal(logits.to(type).amax(1)));
      });
    }
}

TEST(Vocabulary, LogitsForDecodingAreThoseOfTheWhole) {
  for (const at::ScalarType dtype : kDtypes)
    for (const std::int64_t rows : {1, 9}) {
      const at::Tensor x = randn({rows, 16}, dtype, 1), weight = randn({53, 16}, dtype, 2), expected = empty({rows, 53}, dtype);
      head_logits(x, weight, expected, workspace());
      test::on_parts(test::even_bounds(53, 3), [&](const VocabularyPart& part, const Tokens& own) {
        Workspace scratch((c10::Device(c10::kCPU)));
        const at::Tensor logits = empty({rows, 53}, dtype);
        head_logits(x, own.of(weight), logits, scratch, part);
        expect_close(logits, expected, dtype == at::kBFloat16 ? kOneRounding : tolerance(dtype), "logits");
      });
    }
}

TEST(Vocabulary, EmbeddingOnPartsAddsUpToTheWhole) {
  for (const at::ScalarType dtype : kDtypes)
    for (const auto& bounds : cuts()) {
      SCOPED_TRACE(text(bounds) + " in " + c10::toString(dtype));
      const std::int64_t vocabulary = bounds.back();
      std::vector<std::int32_t> ids;
      for (std::int64_t t = 0; t < kPartTokens; ++t) ids.push_back(static_cast<std::int32_t>(t * t % vocabulary));
      const at::Tensor tokens = int32s(ids), weight = randn({vocabulary, kPartWidth}, dtype, 1);
      const at::Tensor gy = randn({kPartTokens, kPartWidth}, dtype, 2), y = empty(gy.sizes(), dtype);
      embedding_forward(tokens, weight, y);
      for (const at::ScalarType grad_dtype : {dtype, statistics_dtype(dtype)}) {
        const at::Tensor start = randn(weight.sizes(), grad_dtype, 3), gweight = start.clone();
        embedding_backward(tokens, gy, gweight);
        at::Tensor sum = zeros(y.sizes(), dtype);
        for (std::size_t p = 0; p + 1 < bounds.size(); ++p) {
          const Tokens own{bounds[p], bounds[p + 1] - bounds[p]};
          const VocabularyPart part{
              .first = own.first, .whole = vocabulary, .parts = static_cast<std::int64_t>(bounds.size()) - 1};
          const at::Tensor mine = empty(y.sizes(), dtype), grad = own.of(start).clone();
          embedding_forward(tokens, own.of(weight), mine, part);
          sum += mine;
          embedding_backward(tokens, gy, grad, part);
          EXPECT_TRUE(grad.equal(own.of(gweight)));
        }
        EXPECT_TRUE(sum.equal(y)) << "one part has the row, the others add zeros";
      }
    }
}

/// Sequences live on one rank each, and the tokens' rows in any part.
TEST(Vocabulary, TokenDifferenceReadsRowsOfTwoParts) {
  for (const at::ScalarType dtype : {at::kDouble, at::kBFloat16})
    for (const TokenPair& tokens : {TokenPair{3, 50}, {50, 3}, {20, 21}, {7, 7}}) {
      const at::ScalarType type = statistics_dtype(dtype);
      const at::Tensor y = randn({5, 16}, dtype, 1), table = randn({53, 16}, dtype, 2), grad = randn({5}, type, 3);
      const at::Tensor values = empty({5}, type), gy = empty(y.sizes(), dtype), gtable = randn(table.sizes(), type, 4),
                       start = gtable.clone();
      token_difference_forward(y, table, tokens, values);
      token_difference_backward(y, table, tokens, grad, gy, gtable);
      const std::vector<std::int64_t> bounds = test::even_bounds(53, 3), sequences = {0, 2, 5, 5};
      test::on_parts(bounds, [&](const VocabularyPart& part, const Tokens& own) {
        const auto p = static_cast<std::size_t>(part.part);
        const auto mine = [&](const at::Tensor& all) { return all.slice(0, sequences[p], sequences[p + 1]); };
        const at::Tensor got = empty(mine(values).sizes(), type), got_gy = empty(mine(gy).sizes(), dtype);
        const at::Tensor rows = own.of(start).clone();
        token_difference_forward(mine(y), own.of(table), tokens, got, part);
        EXPECT_TRUE(got.equal(mine(values)) || relative_error(got, mine(values)) < tolerance(type));
        token_difference_backward(mine(y), own.of(table), tokens, mine(grad), got_gy, rows, part);
        EXPECT_TRUE(got_gy.equal(mine(gy)));
        expect_close(rows, own.of(gtable), tolerance(type), "gtable");
        token_difference_backward(mine(y), own.of(table), tokens, mine(grad), got_gy, {}, part);  // frozen
      });
    }
}

TEST(Vocabulary, ATiedTableGetsTheGradientsOfBothEnds) {
  const Batch batch(53, at::kDouble);
  std::vector<std::int32_t> ids;
  for (std::int64_t t = 0; t < kPartTokens; ++t) ids.push_back(static_cast<std::int32_t>(t * 7 % 53));
  const at::Tensor tokens = int32s(ids);
  Batch whole = batch;
  whole.run({}, whole.weight, false);
  embedding_backward(tokens, whole.gx, whole.gweight);
  test::on_parts(test::even_bounds(53, 4), [&](const VocabularyPart& part, const Tokens& own) {
    Batch mine = batch;
    mine.run(part, own.of(batch.weight), false);
    part.add(mine.gx);
    embedding_backward(tokens, mine.gx, mine.gweight, part);
    expect_close(mine.gweight, own.of(whole.gweight), 1e-12, "gweight");
  });
}

}  // namespace
}  // namespace qft::ops
