#include "qft/tokenizer/tokenizer.h"

#include "qft/core/error.h"

#include <algorithm>
#include <atomic>

#include "impl.h"
#include "loader.h"
#include "unicode.h"
#include "word_encoder.h"

namespace qft::tokenizer {
namespace {

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
