#include "vocabulary.h"

#include "qft/core/error.h"

#include <array>
#include <bit>

#include "unicode.h"
#include <xxhash.h>

namespace qft::tokenizer {
namespace byte_level {
namespace {

struct Alphabet {
  std::array<std::uint16_t, 256> code_point{};
  std::array<std::int16_t, 0x144> byte{};
};

constexpr Alphabet make_alphabet() {
  Alphabet a;
  a.byte.fill(-1);
  std::uint16_t next = 256;
  for (int b = 0; b < 256; ++b) {
    const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    a.code_point[b] = printable ? static_cast<std::uint16_t>(b) : next++;
    a.byte[a.code_point[b]] = static_cast<std::int16_t>(b);
  }
  return a;
}
constexpr Alphabet kAlphabet = make_alphabet();

int byte_of(std::uint32_t code_point) {
  return code_point < kAlphabet.byte.size() ? kAlphabet.byte[code_point] : -1;
}

}  // namespace

std::uint32_t code_point(std::uint8_t byte) {
  return kAlphabet.code_point[byte];
}

void append_encoded(std::string_view bytes, std::string& out) {
  for (const char c : bytes) append_utf8(code_point(static_cast<std::uint8_t>(c)), out);
}

std::string decode(std::string_view text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = decode_utf8(text.data() + i);
    const int byte = byte_of(c.value);
    if (byte < 0) return std::string(text);
    bytes.push_back(static_cast<char>(byte));
    i += c.bytes;
  }
  return bytes;
}

bool covers(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = decode_utf8(text.data() + i);
    if (byte_of(c.value) < 0) return false;
    i += c.bytes;
  }
  return true;
}

}  // namespace byte_level

void Vocabulary::reserve(std::size_t tokens) {
  tokens_.reserve(tokens);
  arena_.reserve(tokens * 16);
  rehash(std::bit_ceil(2 * tokens + 1));
}

Vocabulary::Text Vocabulary::store(std::string_view text) {
  Text t;
  t.begin = arena_.size();
  t.size = text.size();
  require(text.size() < (1u << 24), "a token of {} bytes is longer than the limit of {}", text.size(), 1 << 24);
  arena_ += text;
  return t;
}

std::size_t Vocabulary::slot_of(std::string_view content) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = XXH3_64bits(content.data(), content.size()) & mask;
  while (slots_[slot] != kNoId && view(tokens_[slots_[slot]].content) != content) slot = (slot + 1) & mask;
  return slot;
}

void Vocabulary::rehash(std::size_t slots) {
  slots_.assign(slots, kNoId);
  for (std::int32_t id = 0; id < size(); ++id)
    if (tokens_[id].used) slots_[slot_of(content(id))] = id;
}

void Vocabulary::add(std::string_view content, std::int32_t id, std::string_view decoded, bool model) {
  require(id >= 0 && id <= kMaxId, "token '{}' has id {}, which is outside [0, {}]", content, id, kMaxId);
  if (2 * (count_ + 1) > slots_.size()) rehash(std::bit_ceil(4 * (count_ + 1)));
  const std::size_t slot = slot_of(content);
  require(slots_[slot] == kNoId, "token '{}' is listed twice, with ids {} and {}", content, slots_[slot], id);
  require(!has(id), "id {} belongs to two tokens, '{}' and '{}'", id, has(id) ? this->content(id) : "", content);
  if (id >= size()) tokens_.resize(id + 1);
  Token& token = tokens_[id];
  token.used = true;
  token.model = model;
  token.content = store(content);
  token.decoded = decoded == content ? token.content : store(decoded);
  slots_[slot] = id;
  ++count_;
  model_count_ += model;
}

std::int32_t Vocabulary::find(std::string_view content) const {
  return slots_.empty() ? kNoId : slots_[slot_of(content)];
}

std::int32_t Vocabulary::find_model(std::string_view content) const {
  const std::int32_t id = find(content);
  return id != kNoId && tokens_[id].model ? id : kNoId;
}

}  // namespace qft::tokenizer
