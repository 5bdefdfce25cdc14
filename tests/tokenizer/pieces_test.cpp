// The shortcuts around merging give the same ids as merging: cuts between characters that no merge joins, and known tokens that
// encode as themselves. Tested on models with random merges, some of which end inside characters.
#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "../../src/tokenizer/merge_table.h"
#include "tokenizer/bpe.h"
#include "tokenizer/known_words.h"
#include "tokenizer/unicode.h"
#include <gtest/gtest.h>

namespace qft::tokenizer {
namespace {

using Ids = std::vector<std::int32_t>;

struct Model {
  Vocabulary vocabulary;
  std::vector<Merge> merges;
  std::unique_ptr<BpeModel> bpe;

  Ids encode(std::string_view word) const {
    BpeScratch scratch;
    Ids ids;
    bpe->encode(word, scratch, ids);
    return ids;
  }
};

/// Returns a word from a few characters of each length; some share their first or last bytes.
std::string random_word(std::mt19937& random, std::size_t characters) {
  static constexpr std::uint32_t kPoints[] = {'a',    'b',    ' ',    0xE9,   0xEA,   0x430,   0x3001,  0x4E2D,
                                              0x4E2E, 0x4EAD, 0x5E2D, 0x6587, 0xAC00, 0x1F600, 0x1F601, 0x1F5C0};
  std::string word;
  for (; characters > 0; --characters) append_utf8(kPoints[random() % std::size(kPoints)], word);
  return word;
}

/// The kinds of random merges. trained: of neighbours in a text that is merged along, like a trainer; shuffled: the same in
/// another order; invented: of any two tokens, so that many tokens are never reached.
enum class Merges { trained, shuffled, invented };

std::unique_ptr<Model> random_model(std::mt19937& random, std::size_t merges, Merges kind, BpeModel::Options options = {}) {
  auto model = std::make_unique<Model>();
  Vocabulary& vocabulary = model->vocabulary;
  const auto add = [&](const std::string& bytes) {
    std::string content;
    byte_level::append_encoded(bytes, content);
    if (vocabulary.find(content) == kNoId) vocabulary.add(content, vocabulary.size(), bytes, true);
    return vocabulary.find(content);
  };
  for (int byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)));
  Ids text;
  for (const char byte : kind == Merges::invented ? "abc" : random_word(random, 200))
    text.push_back(static_cast<unsigned char>(byte));
  while (model->merges.size() < merges && text.size() > 1) {
    const std::size_t at = random() % (text.size() - 1);
    const std::int32_t left = text[at], right = text[kind == Merges::invented ? random() % text.size() : at + 1];
    const std::int32_t merged = add(std::string(vocabulary.decoded(left)) + std::string(vocabulary.decoded(right)));
    model->merges.push_back({left, right, merged});
    if (kind == Merges::invented) {
      text.push_back(merged);
      continue;
    }
    Ids next;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const bool here = i + 1 < text.size() && text[i] == left && text[i + 1] == right;
      next.push_back(here ? merged : text[i]);
      i += here;
    }
    text = next;
  }
  if (kind == Merges::shuffled) std::shuffle(model->merges.begin(), model->merges.end(), random);
  model->bpe = std::make_unique<BpeModel>(vocabulary, model->merges, options);
  return model;
}
Merges kind_of(int round) {
  return static_cast<Merges>(round % 3);
}

std::vector<std::string_view> pieces(const JoinTable& joins, std::string_view word) {
  std::vector<std::string_view> result;
  std::size_t begin = 0;
  CodePoint left = decode_utf8(word.data());
  for (std::size_t at = left.bytes; at < word.size();) {
    const CodePoint right = decode_utf8(word.data() + at);
    if (!joins.may_join(word.data() + at, left, right)) {
      result.push_back(word.substr(begin, at - begin));
      begin = at;
    }
    left = right;
    at += right.bytes;
  }
  result.push_back(word.substr(begin));
  return result;
}

TEST(Pieces, GiveTheIdsOfTheWholeWord) {
  std::mt19937 random(1);
  std::size_t words = 0, cut = 0;
  for (int round = 0; round < 200; ++round) {
    const auto model = random_model(random, 1 + random() % 60, kind_of(round));
    for (int i = 0; i < 100; ++i) {
      const std::string word = random_word(random, 2 + random() % 12);
      const auto parts = pieces(model->bpe->joins(), word);
      Ids joined;
      for (const std::string_view part : parts)
        for (const std::int32_t id : model->encode(part)) joined.push_back(id);
      ASSERT_EQ(joined, model->encode(word)) << word;
      ++words;
      cut += parts.size() > 1;
    }
  }
  EXPECT_GT(cut, words / 2);
  EXPECT_LT(cut, words);
}

TEST(Pieces, AreNotCutWhereThatCouldMatter) {
  std::mt19937 random(2);
  EXPECT_FALSE(random_model(random, 20, Merges::trained)->bpe->joins().empty());
  EXPECT_TRUE(random_model(random, 20, Merges::trained, {.ignore_merges = true})->bpe->joins().empty());
  Vocabulary gap;
  for (int byte = 1; byte < 256; ++byte) {
    std::string content;
    byte_level::append_encoded(std::string(1, static_cast<char>(byte)), content);
    gap.add(content, byte, std::string(1, static_cast<char>(byte)), true);
  }
  EXPECT_TRUE(BpeModel(gap, {}, {}).joins().empty());
}

TEST(KnownWords, AreTheTokensThatAreEncodedAsThemselves) {
  std::mt19937 random(3);
  std::size_t known = 0, others = 0;
  for (int round = 0; round < 200; ++round) {
    const auto model = random_model(random, 1 + random() % 60, kind_of(round));
    const ShortWords words = known_words(*model->bpe, model->vocabulary, model->merges);
    for (std::int32_t id = 0; id < model->vocabulary.size(); ++id) {
      const std::string_view bytes = model->vocabulary.decoded(id);
      if (bytes.size() > ShortWords::Key::kMaxBytes) continue;
      const auto* entry = words.find(ShortWords::Key::of(bytes, bytes.data() + bytes.size()));
      others += entry == nullptr;
      if (entry == nullptr) continue;
      ++known;
      ASSERT_EQ(Ids(entry->ids, entry->ids + entry->count), Ids{id});
      ASSERT_EQ(model->encode(bytes), Ids{id}) << bytes;
    }
  }
  EXPECT_GT(known, 200u * 128u);
  EXPECT_GT(others, 0u);
}

TEST(KnownWords, HoldMostTokensThatAreWords) {
  std::mt19937 random(4);
  std::size_t tokens = 0, found = 0;
  for (int round = 0; round < 100; ++round) {
    const auto model = random_model(random, 40, kind_of(round));
    const ShortWords words = known_words(*model->bpe, model->vocabulary, model->merges);
    for (const Merge& merge : model->merges) {
      const std::string_view bytes = model->vocabulary.decoded(merge.merged);
      std::string lossless;
      append_lossy(bytes, false, lossless);
      if (lossless != bytes || bytes.size() > ShortWords::Key::kMaxBytes) continue;
      if (model->encode(bytes) != Ids{merge.merged}) continue;
      ++tokens;
      found += words.find(ShortWords::Key::of(bytes, bytes.data() + bytes.size())) != nullptr;
    }
  }
  EXPECT_GT(tokens, 500u);
  EXPECT_GE(5 * found, 4 * tokens) << found << " of " << tokens;
}

}  // namespace
}  // namespace qft::tokenizer
