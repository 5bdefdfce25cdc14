// Tests the errors about tokens without embedding rows: they name the tokens and the remedy.
#include "qft/engine/token_rows.h"

#include "qft/core/log.h"

#include <string>
#include <vector>

#include "io/temp_dir.h"
#include "tokenizer/fixture.h"
#include <gtest/gtest.h>

namespace qft::engine {
namespace {

using test::contains;
using test::error_of;

TEST(TokenRows, TokensWithoutOneAreNamedWithTheirIds) {
  const auto tokenizer = tokenizer::Tokenizer::load(tokenizer::tiny_dir());
  const std::int32_t last = tokenizer->vocab_size() - 1;
  const std::string word = fmt::format("'{}' (id {})", tokenizer->id_to_token(last), last);
  EXPECT_EQ(tokens_beyond(*tokenizer, last + 1), "");
  EXPECT_EQ(tokens_beyond(*tokenizer, last + 500), "") << "rows may be padded";
  EXPECT_EQ(tokens_beyond(*tokenizer, last), word);
  EXPECT_TRUE(contains(tokens_beyond(*tokenizer, last - 5), "and 2 more"));
  require_token_rows(*tokenizer, "t", "m", last + 1);
  const std::string error = error_of([&] { require_token_rows(*tokenizer, "t", "m", last); });
  EXPECT_TRUE(contains(error, fmt::format("has {} token ids, model 'm' has rows for {}: none for {}", last + 1, last, word)));
  EXPECT_TRUE(contains(error, "qft-ckpt add-tokens"));
}

TEST(TokenRows, APromptMayDoWithoutThem) {
  const auto tokenizer = tokenizer::Tokenizer::load(tokenizer::tiny_dir());
  const std::int32_t last = tokenizer->vocab_size() - 1;
  require_token_rows(*tokenizer, std::vector<std::int32_t>{0, last - 1}, "m", last);
  const std::string error =
      error_of([&] { require_token_rows(*tokenizer, std::vector<std::int32_t>{0, last, last}, "m", last); });
  EXPECT_TRUE(contains(error, fmt::format("the prompt has tokens beyond the {} rows of model 'm': '{}' (id {}). Add rows", last,
                                          tokenizer->id_to_token(last), last)));
  log::init({});
  testing::internal::CaptureStderr();
  warn_of_token_rows(*tokenizer, "m", last + 1);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  testing::internal::CaptureStderr();
  warn_of_token_rows(*tokenizer, "m", last);
  EXPECT_TRUE(contains(testing::internal::GetCapturedStderr(), "No prompt may have them, and no answer will"));
}

}  // namespace
}  // namespace qft::engine
