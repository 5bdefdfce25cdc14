// Tokens by content and by id. Internal to the module.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qft::tokenizer {

/// Ids are packed in 21 bits by the merge table.
inline constexpr std::int32_t kMaxId = (1 << 21) - 2;
inline constexpr std::int32_t kNoId = -1;

/// The byte-level alphabet of GPT-2 (encoder.py, bytes_to_unicode): every byte has a printable code point.
namespace byte_level {
/// The code point that stands for `byte` (below 0x144).
std::uint32_t code_point(std::uint8_t byte);
/// Appends `bytes` in the alphabet.
void append_encoded(std::string_view bytes, std::string& out);
/// The bytes of `text`, or `text` itself where it holds a character outside the alphabet.
std::string decode(std::string_view text);
/// True where every character of `text` is in the alphabet.
bool covers(std::string_view text);
}  // namespace byte_level

/// Content <-> id, and the bytes that a token decodes to.
class Vocabulary {
 public:
  /// Room for `tokens` tokens.
  void reserve(std::size_t tokens);

  /// Adds a token that decodes to `decoded`; `model` marks a token of the BPE model itself. Throws Error
  /// where the content or the id is taken, or the id is out of [0, kMaxId].
  void add(std::string_view content, std::int32_t id, std::string_view decoded, bool model);

  /// The id of `content`, or kNoId.
  std::int32_t find(std::string_view content) const;
  /// As find(), of the BPE model's own tokens alone.
  std::int32_t find_model(std::string_view content) const;

  bool has(std::int32_t id) const { return id >= 0 && id < size() && tokens_[id].used; }
  std::string_view content(std::int32_t id) const { return view(tokens_[id].content); }
  std::string_view decoded(std::int32_t id) const { return view(tokens_[id].decoded); }
  /// The largest id plus one.
  std::int32_t size() const { return static_cast<std::int32_t>(tokens_.size()); }
  /// Tokens of the BPE model.
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
  std::vector<std::int32_t> slots_;  ///< open addressing, a power of two, kNoId where empty
  std::size_t count_ = 0;
  std::int32_t model_count_ = 0;
};

}  // namespace qft::tokenizer
