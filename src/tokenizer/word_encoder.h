// Converts words to ids with the thread's cache. Internal to the module.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "bpe.h"
#include "pre_tokenizer.h"
#include "unicode.h"
#include "word_cache.h"

namespace qft::tokenizer {

/// A thread's state for one tokenizer.
struct ThreadState {
  explicit ThreadState(std::uint64_t tokenizer) : serial(tokenizer) {}

  std::uint64_t serial;  ///< the tokenizer's
  ShortWords short_words{15};
  LongWords long_words{13};
  BpeScratch bpe;
  PreTokenizerScratch pre_tokenizer;
  std::string normalized;
  std::vector<std::int32_t> word_ids;
};

/// Converts words to ids: first looks in the tokenizer's own words, then in the words that the thread saw recently; encodes the
/// others. A small buffer collects ids before they go to the caller's vector.
class WordEncoder {
 public:
  WordEncoder(const BpeModel& bpe, const ShortWords& known, ThreadState& state, std::vector<std::int32_t>& out)
      : bpe_(bpe), joins_(bpe.joins()), known_(known), state_(state), out_(out) {}

  /// Adds a word. Its bytes must stay valid until drain(); memory up to `limit` may be read.
  void word(const char* begin, const char* end, const char* limit) {
    if (joins_.empty() || !lacks_spaces(begin, end)) [[likely]]
      return piece(begin, end, limit);
    CodePoint left = decode_utf8(begin);
    for (const char* p = begin + left.bytes; p < end;) {
      const CodePoint right = decode_utf8(p);
      if (!joins_.may_join(p, left, right)) {
        piece(begin, p, limit);
        begin = p;
      }
      left = right;
      p += right.bytes;
    }
    piece(begin, end, limit);
  }
  void drain() {
    for (std::size_t i = 0; i < words_; ++i) look_up(batch_[i]);
    words_ = 0;
  }
  /// Adds a token; call drain() for earlier words before.
  void id(std::int32_t id) {
    if (count_ == kBuffer) flush();
    buffer_[count_++] = id;
  }
  void flush() {
    out_.insert(out_.end(), buffer_, buffer_ + count_);
    count_ = 0;
  }

 private:
  static constexpr std::size_t kBuffer = 1024, kBatch = 32;

  /// Words are batched, so that their prefetched entries arrive meanwhile.
  struct Word {
    std::string_view bytes;
    const char* limit;
    ShortWords::Key key;
    const ShortWords::Entry* set;  ///< null for a word that is too long
  };

  /// True for a word in a script without spaces, judged by its first two characters.
  static bool lacks_spaces(const char* begin, const char* end) {
    const auto lead = [&](const char* p) { return p < end ? static_cast<unsigned char>(*p) : 0u; };
    return lead(begin) >= 0xE3 || lead(begin + 1) >= 0xE3;
  }

  void piece(const char* begin, const char* end, const char* limit) {
    Word& word = batch_[words_++];
    word.bytes = {begin, end};
    word.limit = limit;
    word.set = nullptr;
    if (word.bytes.size() <= ShortWords::Key::kMaxBytes) {
      word.key = ShortWords::Key::of(word.bytes, limit);
      word.set = known_.prefetch(word.key);
    }
    if (words_ == kBatch) drain();
  }

  void look_up(const Word& word) {
    if (word.set != nullptr) {
      const ShortWords::Entry* entry = ShortWords::find(word.set, word.key);
      if (entry == nullptr) entry = state_.short_words.find(word.key);
      if (entry != nullptr) [[likely]]
        return append(*entry);
    }
    if (word.bytes.size() > LongWords::Key::kMaxBytes) return append(encoded(word.bytes));
    const LongWords::Key key = LongWords::Key::of(word.bytes, word.limit);
    if (const LongWords::Entry* entry = state_.long_words.find(key)) return append(*entry);
    const std::vector<std::int32_t>& ids = encoded(word.bytes);
    append(ids);
    if (word.set != nullptr && ids.size() <= ShortWords::kMaxIds)
      state_.short_words.insert(word.key, ids);
    else if (ids.size() <= LongWords::kMaxIds)
      state_.long_words.insert(key, ids);
  }

  const std::vector<std::int32_t>& encoded(std::string_view word) {
    state_.word_ids.clear();
    bpe_.encode(word, state_.bpe, state_.word_ids);
    return state_.word_ids;
  }

  /// Reserves a whole entry's room and uses the needed part.
  template <class Entry>
  void append(const Entry& entry) {
    if (count_ + std::size(entry.ids) > kBuffer) flush();
    std::memcpy(buffer_ + count_, entry.ids, sizeof entry.ids);
    count_ += static_cast<std::size_t>(entry.count);
  }

  void append(const std::vector<std::int32_t>& ids) {
    flush();
    out_.insert(out_.end(), ids.begin(), ids.end());
  }

  const BpeModel& bpe_;
  const JoinTable& joins_;
  const ShortWords& known_;
  ThreadState& state_;
  std::vector<std::int32_t>& out_;
  std::size_t count_ = 0, words_ = 0;
  std::int32_t buffer_[kBuffer];
  Word batch_[kBatch];
};

}  // namespace qft::tokenizer
