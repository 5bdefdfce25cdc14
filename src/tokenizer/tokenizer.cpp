#include "qft/tokenizer/tokenizer.h"

#include "qft/core/error.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "bpe.h"
#include "loader.h"
#include "pre_tokenizer.h"
#include "unicode.h"
#include "word_cache.h"

namespace qft::tokenizer {
namespace {

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

constexpr std::size_t kMaxText = std::size_t{1} << 30;
/// Number of tokenizers per thread with a cache; the least recently used cache is dropped first.
constexpr std::size_t kStatesPerThread = 4;

ThreadState& thread_state(const Tokenizer::Impl& impl) {
  thread_local std::vector<std::unique_ptr<ThreadState>> states;
  const auto mine = [&](const auto& state) { return state->serial == impl.serial; };
  auto it = std::find_if(states.begin(), states.end(), mine);
  if (it == states.end()) {
    if (states.size() == kStatesPerThread) states.pop_back();
    states.push_back(std::make_unique<ThreadState>(impl.serial));
    it = states.end() - 1;
  }
  std::rotate(states.begin(), it, it + 1);
  return *states.front();
}

void encode_text(const Tokenizer::Impl& impl, std::string_view text, std::vector<std::int32_t>& out) {
  ThreadState& state = thread_state(impl);
  WordEncoder encoder(*impl.bpe, *impl.known_words, state, out);
  const auto token = [&](std::int32_t id) { encoder.id(id); };
  const auto word = [&](const char* begin, const char* end, const char* limit) { encoder.word(begin, end, limit); };
  const auto words = [&](std::string_view part) {
    impl.pre_tokenizer.split(part, state.pre_tokenizer, word);
    encoder.drain();
  };
  impl.raw_tokens.split(
      text,
      [&](std::string_view part) {
        if (impl.nfc && normalize_nfc(part, state.normalized)) part = state.normalized;
        impl.normalized_tokens.split(part, words, token);
      },
      token);
  encoder.flush();
}

std::uint64_t next_serial() {
  static std::atomic<std::uint64_t> counter{0};
  return ++counter;
}

}  // namespace

Tokenizer::Impl::Impl() : serial(next_serial()) {}

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

std::shared_ptr<const Tokenizer> Tokenizer::load(const std::filesystem::path& dir, std::span<const std::string> more_special) {
  auto impl = std::make_unique<Impl>();
  load_tokenizer(dir, more_special, *impl);
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(impl)));
}

void Tokenizer::encode(std::string_view utf8, std::vector<std::int32_t>& out) const {
  require(utf8.size() < kMaxText, "a text of {} bytes is too long for one call (the limit is {}): split it", utf8.size(),
          kMaxText);
  require_utf8(utf8);
  const std::size_t size = out.size();
  try {
    encode_text(*impl_, utf8, out);
  } catch (...) {
    out.resize(size);
    throw;
  }
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view utf8) const {
  std::vector<std::int32_t> ids;
  encode(utf8, ids);
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  std::string bytes, text;
  for (const std::int32_t id : ids)
    if (impl_->vocabulary.has(id) && !(skip_special && impl_->special[id])) bytes += impl_->vocabulary.decoded(id);
  append_lossy(bytes, false, text);
  return text;
}

std::optional<std::int32_t> Tokenizer::token_to_id(std::string_view token) const {
  const std::int32_t id = impl_->vocabulary.find(token);
  return id == kNoId ? std::nullopt : std::optional(id);
}

std::string Tokenizer::id_to_token(std::int32_t id) const {
  require(impl_->vocabulary.has(id), "id {} has no token (the vocabulary ends at {})", id, vocab_size() - 1);
  return std::string(impl_->vocabulary.content(id));
}

bool Tokenizer::is_special(std::int32_t id) const {
  return impl_->vocabulary.has(id) && impl_->special[id];
}
std::int32_t Tokenizer::vocab_size() const {
  return impl_->vocabulary.size();
}
std::optional<std::int32_t> Tokenizer::bos_id() const {
  return impl_->bos;
}
std::optional<std::int32_t> Tokenizer::eos_id() const {
  return impl_->eos;
}
std::optional<std::int32_t> Tokenizer::pad_id() const {
  return impl_->pad;
}
std::optional<std::int32_t> Tokenizer::unk_id() const {
  return impl_->unk;
}
const std::string& Tokenizer::hash() const {
  return impl_->hash;
}

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(tokenizer), skip_special_(skip_special) {}

std::string StreamDecoder::push(std::int32_t id) {
  const Tokenizer::Impl& impl = *tokenizer_.impl_;
  std::string text;
  if (!impl.vocabulary.has(id) || (skip_special_ && impl.special[id])) return text;
  pending_ += impl.vocabulary.decoded(id);
  pending_.erase(0, append_lossy(pending_, true, text));
  return text;
}

std::string StreamDecoder::finish() {
  std::string text;
  append_lossy(pending_, false, text);
  pending_.clear();
  return text;
}

}  // namespace qft::tokenizer
