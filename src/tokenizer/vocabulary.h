// Maps tokens by content and by id. Internal to the module.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qft::tokenizer {

/// The merge table packs ids into 21 bits.
inline constexpr std::int32_t kMaxId = (1 << 21) - 2;
inline constexpr std::int32_t kNoId = -1;

/// The byte-level alphabet of GPT-2 (encoder.py, bytes_to_unicode): each byte has a printable code point.
namespace byte_level {
/// Returns the code point for `byte` (below 0x144).
std::uint32_t code_point(std::uint8_t byte);
/// Appends `bytes` encoded in the alphabet.
void append_encoded(std::string_view bytes, std::string& out);
/// Returns the bytes of `text`, or `text` itself if it has a character outside the alphabet.
std::string decode(std::string_view text);
/// True if every character of `text` is in the alphabet.
bool covers(std::string_view text);
}  // namespace byte_level

/// Maps content to id and back, and to the bytes that a token decodes to.
class Vocabulary {
 public:
  /// Reserves space for `tokens` tokens.
  void reserve(std::size_t tokens);

  /// Adds a token that decodes to `decoded`; `model` is true for a token of the BPE model. Throws Error if the content or the
  /// id is taken, or the id is outside [0, kMaxId].
  void add(std::string_view content, std::int32_t id, std::string_view decoded, bool model);

  /// Returns the id of `content`, or kNoId.
  std::int32_t find(std::string_view content) const;
  /// Like find(), among the BPE model's tokens only.
  std::int32_t find_model(std::string_view content) const;

  bool has(std::int32_t id) const { return id >= 0 && id < size() && tokens_[id].used; }
  std::string_view content(std::int32_t id) const { return view(tokens_[id].content); }
  std::string_view decoded(std::int32_t id) const { return view(tokens_[id].decoded); }
  /// Returns the largest id plus one.
  std::int32_t size() const { return static_cast<std::int32_t>(tokens_.size()); }
  /// Number of tokens of the BPE model.
  std::int32_t model_count() const { return model_count_; }

 private:
  struct Text {
    std::uint64_t begin : 40 = 0, size : 24 = 0;
  };
  struct Token {
    Text content, decoded;
    bool used = false, model = false;
  };
  std::string_view view(Text t) const { return std::string_view(arena_).substr(t.begin, t.size); }
  Text store(std::string_view text);
  void rehash(std::size_t slots);
  std::size_t slot_of(std::string_view content) const;

  std::string arena_;
  std::vector<Token> tokens_;
  std::vector<std::int32_t> slots_;  ///< open addressing, size a power of two, kNoId if empty
  std::size_t count_ = 0;
  std::int32_t model_count_ = 0;
};

}  // namespace qft::tokenizer
