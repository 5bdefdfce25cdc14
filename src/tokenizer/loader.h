// Loads a Tokenizer::Impl from a tokenizer's files. Internal to the module.
#pragma once

#include "qft/tokenizer/tokenizer.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "added_tokens.h"
#include "bpe.h"
#include "pre_tokenizer.h"
#include "vocabulary.h"
#include "word_cache.h"
#include <simdjson.h>

namespace qft::tokenizer {

struct Tokenizer::Impl {
  Impl();
  Impl(const Impl&) = delete;

  std::uint64_t serial;  ///< unique in the process; identifies the tokenizer in thread caches
  Vocabulary vocabulary;
  std::unique_ptr<BpeModel> bpe;
  std::unique_ptr<const ShortWords> known_words;
  bool nfc = false;
  PreTokenizer pre_tokenizer;
  AddedTokenMatcher raw_tokens;         ///< matched in the original text
  AddedTokenMatcher normalized_tokens;  ///< matched after normalisation
  std::vector<bool> special;            ///< by id
  std::optional<std::int32_t> bos, eos, pad, unk;
  std::string hash;
};

/// Fills `impl` from the files in `dir` (see Tokenizer::load).
void load_tokenizer(const std::filesystem::path& dir, std::span<const std::string> more_special, Tokenizer::Impl& impl);

/// A value of a JSON file with its place for messages ("model.merges"). Getters throw Error with the file, the place and the
/// expected kind.
class JsonValue {
 public:
  JsonValue(simdjson::dom::element value, std::string place) : value_(value), place_(std::move(place)) {}

  /// Returns a member, or nullopt if it is missing or null.
  std::optional<JsonValue> get(std::string_view key) const;
  /// Returns a required member.
  JsonValue at(std::string_view key) const;
  std::string_view string() const;
  bool boolean() const;
  std::int64_t integer() const;
  simdjson::dom::object object() const;
  simdjson::dom::array array() const;
  bool is_string() const { return value_.is_string(); }
  bool is_object() const { return value_.is_object(); }
  bool is_array() const { return value_.is_array(); }
  bool flag(std::string_view key, bool fallback) const;
  const std::string& place() const { return place_; }
  std::vector<JsonValue> elements() const;

 private:
  simdjson::dom::element value_;
  std::string place_;
};

/// Throws Error if `object` has a key that is not in `known`.
void require_known_keys(const JsonValue& object, std::initializer_list<std::string_view> known);

/// The added tokens in HF's order and with HF's ids.
class AddedTokenList {
 public:
  AddedTokenList(Vocabulary& vocabulary, bool nfc) : vocabulary_(vocabulary), nfc_(nfc) {}
  /// Adds a token, or replaces the flags of an existing one. `token.id` is the file's id (kNoId: none); throws Error with
  /// `place` if HF would give the token another id.
  void add(AddedToken token, std::string_view place);
  const AddedToken* find(std::string_view content) const;
  const std::vector<AddedToken>& tokens() const { return tokens_; }

 private:
  Vocabulary& vocabulary_;
  bool nfc_;
  std::vector<AddedToken> tokens_;
  std::unordered_map<std::string, std::size_t> index_;
  std::int32_t next_id_ = 0;
};

/// Load the parts of tokenizer.json. `prefix_space` overrides add_prefix_space of a pre-tokenizer that is a single ByteLevel.
void load_model(const JsonValue& model, Tokenizer::Impl& impl);
void load_normalizer(const std::optional<JsonValue>& normalizer, Tokenizer::Impl& impl);
void load_pre_tokenizer(const JsonValue& pre_tokenizer, std::optional<bool> prefix_space, PreTokenizer& out);
void check_decoder(const JsonValue& decoder, const Vocabulary& vocabulary);
AddedToken parse_added_token(const JsonValue& token);

}  // namespace qft::tokenizer
