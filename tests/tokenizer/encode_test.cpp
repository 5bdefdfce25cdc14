// Encodes and decodes with the tiny tokenizer: a byte token's id is the byte's value, merges follow.
#include <atomic>
#include <random>
#include <thread>

#include "fixture.h"

namespace qft::tokenizer {
namespace {

class Encode : public testing::Test {
 protected:
  std::shared_ptr<const Tokenizer> tokenizer_ = Tokenizer::load(tiny_dir());
  std::int32_t id(std::string_view token) const { return tokenizer_->token_to_id(token).value(); }
  using Ids = std::vector<std::int32_t>;
};

TEST_F(Encode, MergesTheBestPairFirstAndTheLeftmostOfEquals) {
  EXPECT_EQ(tokenizer_->encode("the"), Ids{id("the")});
  EXPECT_EQ(tokenizer_->encode(" the"), Ids{id("Ġthe")});
  EXPECT_EQ(tokenizer_->encode("aaa"), (Ids{id("aa"), id("a")}));
  EXPECT_EQ(tokenizer_->encode("aaaaa"), (Ids{id("aaaa"), id("a")}));
}

TEST_F(Encode, AppendsToWhatIsThere) {
  Ids ids{7};
  tokenizer_->encode("the", ids);
  EXPECT_EQ(ids, (Ids{7, id("the")}));
  tokenizer_->encode("", ids);
  EXPECT_EQ(ids.size(), 2u);
}

TEST_F(Encode, CutsOutAddedTokens) {
  EXPECT_EQ(tokenizer_->encode("the<|im_start|>the<tool_call>"),
            (Ids{id("the"), id("<|im_start|>"), id("the"), id("<tool_call>")}));
  EXPECT_EQ(tokenizer_->encode("<|im_start").size(), 10u);
}

TEST_F(Encode, NormalisesToNfc) {
  EXPECT_EQ(tokenizer_->encode("u\u0308"), Ids{id("Ã¼")});
  EXPECT_EQ(tokenizer_->encode("u\u0323\u0308"), tokenizer_->encode("u\u0308\u0323"));
  EXPECT_EQ(tokenizer_->decode(tokenizer_->encode("\u1112\u1161\u11AB")), "\uD55C");
}

TEST_F(Encode, TakesDigitsOneByOne) {
  EXPECT_EQ(tokenizer_->encode("123"), (Ids{'1', '2', '3'}));
}

TEST_F(Encode, DropsBytesThatHaveNoToken) {
  const Changed changed([](nlohmann::json& t, nlohmann::json&) {
    auto& vocab = t["model"]["vocab"];
    vocab["another"] = vocab["q"];
    vocab.erase("q");
  });
  const auto tokenizer = changed.load();
  EXPECT_EQ(tokenizer->encode("qq"), Ids{});
  EXPECT_EQ(tokenizer->encode("qaq"), Ids{'a'});
}

TEST_F(Encode, GivesTheSameIdsWhateverTheCacheHolds) {
  std::mt19937 random(3);
  std::vector<std::string> texts;
  for (int i = 0; i < 3000; ++i) {
    std::string text;
    for (std::size_t n = random() % 60; n > 0; --n) text += "the aAl'\n12\xC3\xBC"[random() % 11];
    if (text.ends_with('\xC3')) text += '\xBC';
    texts.push_back(text);
  }
  const auto fresh = Tokenizer::load(tiny_dir());
  for (int round = 0; round < 3; ++round)
    for (const std::string& text : texts) {
      ASSERT_EQ(tokenizer_->decode(tokenizer_->encode(text)), text);
      if (round == 2) {
        ASSERT_EQ(tokenizer_->encode(text), fresh->encode(text));
      }
    }
}

TEST_F(Encode, HandlesAMegabyteInOneWord) {
  const std::string word(1 << 20, 'a');
  const Ids ids = tokenizer_->encode(word);
  EXPECT_EQ(ids.size(), word.size() / 4);
  EXPECT_EQ(tokenizer_->decode(ids), word);
  EXPECT_EQ(tokenizer_->encode(std::string(1 << 20, ' ')).size(), (1u << 20) / 4);
  std::string marks = "e";
  for (int i = 0; i < 100000; ++i) marks += "\u0345\u0316";
  EXPECT_EQ(tokenizer_->encode(marks).size(), marks.size());
}

TEST_F(Encode, IsTheSameOnEveryThread) {
  const std::string text = "the the aaaa <|im_end|> l'll \u4E2D\u4E2D the\n\n1234 u\u0308";
  const Ids want = tokenizer_->encode(text);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) wrong += tokenizer_->encode(text) != want;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(Encode, RefusesBrokenUtf8AndLeavesTheOutputAsItWas) {
  for (const std::string_view broken : {"a\x80", "\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "x\xE4\xB8", "\xFF"}) {
    Ids ids{1, 2};
    EXPECT_THROW(tokenizer_->encode(broken, ids), Error) << testing::PrintToString(broken);
    EXPECT_EQ(ids, (Ids{1, 2}));
  }
  try {
    tokenizer_->encode("abc\xFFz");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("0xFF at offset 3"), std::string::npos) << error.what();
  }
}

TEST_F(Encode, DecodesWithAndWithoutSpecialTokens) {
  const Ids ids = tokenizer_->encode("<|im_start|>the<tool_call> the<|im_end|>");
  EXPECT_EQ(tokenizer_->decode(ids), "<|im_start|>the<tool_call> the<|im_end|>");
  EXPECT_EQ(tokenizer_->decode(ids, true), "the<tool_call> the");
  EXPECT_EQ(tokenizer_->decode(Ids{-1, 'a', 1 << 20}), "a");
}

TEST_F(Encode, PutsReplacementCharactersForBrokenBytes) {
  EXPECT_EQ(tokenizer_->decode(Ids{0xE4, 0xB8, 'x', 0x80, 0xF0, 0x9F}), "\uFFFDx\uFFFD\uFFFD");
}

TEST_F(Encode, StreamsWholeCharactersOnly) {
  StreamDecoder decoder(*tokenizer_);
  EXPECT_EQ(decoder.push(0xE4), "");
  EXPECT_EQ(decoder.push(0xB8), "");
  EXPECT_EQ(decoder.push(0xAD), "\u4E2D");
  EXPECT_EQ(decoder.push(0xE4), "");
  EXPECT_EQ(decoder.push('x'), "\uFFFDx");
  EXPECT_EQ(decoder.push(0xF0), "");
  EXPECT_EQ(decoder.push(-5), "");
  EXPECT_EQ(decoder.finish(), "\uFFFD");
  EXPECT_EQ(decoder.finish(), "");
  StreamDecoder quiet(*tokenizer_, true);
  EXPECT_EQ(quiet.push(id("<|im_end|>")), "");
}

TEST_F(Encode, StreamsWhatDecodeGivesForRandomIds) {
  std::mt19937 random(5);
  for (int round = 0; round < 2000; ++round) {
    Ids ids;
    for (std::size_t n = random() % 20; n > 0; --n) ids.push_back(static_cast<std::int32_t>(random() % tokenizer_->vocab_size()));
    StreamDecoder decoder(*tokenizer_);
    std::string streamed;
    for (const std::int32_t i : ids) streamed += decoder.push(i);
    ASSERT_EQ(streamed + decoder.finish(), tokenizer_->decode(ids));
  }
}

}  // namespace
}  // namespace qft::tokenizer
