// Byte-level BPE tokenizers in Hugging Face's format (tokenizer.json). Converts text to ids and back, with exactly the results
// of HF tokenizers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qft::tokenizer {

/// An immutable tokenizer; every member may be called from any number of threads at once. Each encoding thread keeps its own
/// bounded word cache (about 1.5 MB per tokenizer).
class Tokenizer {
 public:
  /// Reads tokenizer.json of `dir`, and tokenizer_config.json, special_tokens_map.json and added_tokens.json if they exist.
  /// Throws Error with the file and the part that is broken or not supported. The pre-tokenizer patterns of GPT-2, Qwen and
  /// Llama 3 are built in. Others run on PCRE2; its Unicode may be older than HF's, so newer characters may be cut differently.
  /// `more_special`: further special tokens, added like transformers' add_special_tokens(): a text that is not a token yet gets
  /// the next free id.
  static std::shared_ptr<const Tokenizer> load(const std::filesystem::path& dir, std::span<const std::string> more_special = {});

  struct Impl;  ///< private to the module's sources
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// Appends the ids of `utf8` to `out`. Recognises added tokens inside the text and puts none around it (HF: encode(text,
  /// add_special_tokens=False)). Throws Error with the byte offset for invalid UTF-8, and for a text of 1 GiB or more; `out` is
  /// then unchanged.
  void encode(std::string_view utf8, std::vector<std::int32_t>& out) const;
  std::vector<std::int32_t> encode(std::string_view utf8) const;

  /// Returns the text of `ids`; invalid UTF-8 becomes U+FFFD. `skip_special` leaves out special tokens (HF: decode(ids,
  /// skip_special_tokens, clean_up_tokenization_spaces=False)). Ids without a token are skipped.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special = false) const;

  /// Returns the id of a token by its content in tokenizer.json (byte-level alphabet: "Ġthe"), or nullopt.
  std::optional<std::int32_t> token_to_id(std::string_view token) const;
  /// Inverse of token_to_id; throws Error for an id that has no token.
  std::string id_to_token(std::int32_t id) const;
  /// True for an added token that is marked special.
  bool is_special(std::int32_t id) const;

  /// The largest id plus one (not the size of a model's embedding, which is often padded).
  std::int32_t vocab_size() const;

  /// Ids from tokenizer_config.json, or special_tokens_map.json, which takes precedence if the former has no added_tokens_decoder
  /// (as in transformers); nullopt if neither file names one.
  std::optional<std::int32_t> bos_id() const;
  std::optional<std::int32_t> eos_id() const;
  std::optional<std::int32_t> pad_id() const;
  std::optional<std::int32_t> unk_id() const;

  /// XXH3-128 (hex) of everything that determines tokenisation: the bytes of tokenizer.json, the effective added tokens with
  /// their flags, and bos, eos, pad and unk.
  const std::string& hash() const;

 private:
  friend class StreamDecoder;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

/// Decodes one id at a time and returns whole UTF-8 characters only: the joined pieces equal Tokenizer::decode() of all ids.
/// Keeps a reference to the tokenizer; not thread-safe.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = false);

  /// Returns the text that `id` completes; may be empty.
  std::string push(std::int32_t id);
  /// Returns the rest (an unfinished character becomes U+FFFD) and resets the decoder.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_;
  std::string pending_;  ///< bytes of an unfinished character
};

}  // namespace qft::tokenizer
