// Loads the model of tokenizer.json, and reads JSON values with their places.
// Loads the normalizer, pre_tokenizer and decoder of tokenizer.json.
#include "qft/core/error.h"

#include "known_words.h"
#include "loader.h"

namespace qft::tokenizer {
namespace {

void load_vocabulary(const JsonValue& vocab, Vocabulary& vocabulary) {
  const simdjson::dom::object entries = vocab.object();
  vocabulary.reserve(entries.size());
  for (const auto& [content, value] : entries) {
    std::int64_t id = 0;
    require(value.get(id) == simdjson::SUCCESS && id >= 0 && id <= kMaxId, "{}: the id of '{}' is not an integer in [0, {}]",
            vocab.place(), content, kMaxId);
    try {
      vocabulary.add(content, static_cast<std::int32_t>(id), byte_level::decode(content), true);
    } catch (const Error& error) {
      fail("{}: {}", vocab.place(), error.what());
    }
  }
}

/// Parses the two tokens of an entry of `merges`: ["a", "b"] or "a b".
std::pair<std::string_view, std::string_view> parse_merge(simdjson::dom::element entry, const std::string& place,
                                                          std::size_t index) {
  std::string_view left, right;
  if (entry.get(left) == simdjson::SUCCESS) {
    const std::size_t space = left.find(' ');
    if (space != std::string_view::npos && left.find(' ', space + 1) == std::string_view::npos)
      return {left.substr(0, space), left.substr(space + 1)};
  } else if (simdjson::dom::array pair; entry.get(pair) == simdjson::SUCCESS && pair.size() == 2 &&
                                        pair.at(0).get(left) == simdjson::SUCCESS && pair.at(1).get(right) == simdjson::SUCCESS) {
    return {left, right};
  }
  fail("{}[{}] is neither \"a b\" nor [\"a\", \"b\"]", place, index);
}

std::vector<Merge> load_merges(const JsonValue& value, const Vocabulary& vocabulary) {
  std::vector<Merge> merges;
  const simdjson::dom::array entries = value.array();
  merges.reserve(entries.size());
  std::string joined;
  std::size_t index = 0;
  for (const simdjson::dom::element entry : entries) {
    const std::size_t at = index++;
    if (std::string_view text; entry.get(text) == simdjson::SUCCESS && text.starts_with("#version")) continue;
    const auto [left, right] = parse_merge(entry, value.place(), at);
    joined.assign(left);
    joined += right;
    const std::int32_t next = merges.empty() ? 0 : merges.back().merged + 1;  // the usual id of the merged token
    const Merge merge{vocabulary.find(left), vocabulary.find(right),
                      vocabulary.has(next) && vocabulary.content(next) == joined ? next : vocabulary.find(joined)};
    if (merge.left == kNoId || merge.right == kNoId || merge.merged == kNoId) {
      const std::string_view missing = merge.left == kNoId ? left : merge.right == kNoId ? right : joined;
      fail("{}[{}] names the token '{}', but model.vocab lacks it: the file is damaged or was edited by hand", value.place(), at,
           missing);
    }
    merges.push_back(merge);
  }
  return merges;
}

void refuse_affix(const JsonValue& model, std::string_view key) {
  if (const auto affix = model.get(key))
    require(affix->string().empty(), "{} is '{}'; qft supports only byte-level BPE, without it", affix->place(), affix->string());
}

SplitBehavior parse_behavior(const JsonValue& value) {
  const std::string_view name = value.string();
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  fail("{}: '{}' is not a behavior; use Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous", value.place(),
       name);
}

PreTokenizer::Stage parse_split(const JsonValue& value) {
  require_known_keys(value, {"type", "pattern", "behavior", "invert"});
  const SplitBehavior behavior = parse_behavior(value.at("behavior"));
  const bool invert = value.flag("invert", false);
  const JsonValue pattern = value.at("pattern");
  if (const auto literal = pattern.get("String")) {
    require(!literal->string().empty(), "{} is empty: it would cut the text everywhere", literal->place());
    return Split{Literal{std::string(literal->string())}, behavior, invert};
  }
  const JsonValue regex = pattern.at("Regex");
  // The scanned patterns match the whole text, so keeping the matches equals isolating them.
  const bool keeps_matches = behavior == SplitBehavior::isolated || (behavior == SplitBehavior::removed && invert);
  if (const auto scanner = scanner_for(regex.string()); scanner && keeps_matches) return *scanner;
  try {
    return Split{Regex(std::string(regex.string())), behavior, invert};
  } catch (const Error& error) {
    fail("{}: {}", regex.place(), error.what());
  }
}

void add_byte_level(const JsonValue& value, std::optional<bool> prefix_space, PreTokenizer& out) {
  require_known_keys(value, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
  if (prefix_space.value_or(value.at("add_prefix_space").boolean())) out.add(PrefixSpace{});
  if (value.flag("use_regex", true)) out.add(ScannerKind::gpt2);
}

void flatten(const JsonValue& value, std::string_view list_key, std::vector<JsonValue>& out) {
  if (value.at("type").string() != "Sequence") return out.push_back(value);
  for (const JsonValue& element : value.at(list_key).elements()) flatten(element, list_key, out);
}

}  // namespace

void load_model(const JsonValue& model, Tokenizer::Impl& impl) {
  if (const auto type = model.get("type"))
    require(type->string() == "BPE", "{} is '{}'; qft supports byte-level BPE only", type->place(), type->string());
  require_known_keys(model, {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                             "byte_fallback", "ignore_merges", "vocab", "merges"});
  if (const auto dropout = model.get("dropout"))
    fail("{} is set: merges would be dropped at random, which qft does not do; set it to null", dropout->place());
  refuse_affix(model, "continuing_subword_prefix");
  refuse_affix(model, "end_of_word_suffix");
  load_vocabulary(model.at("vocab"), impl.vocabulary);
  BpeModel::Options options;
  options.ignore_merges = model.flag("ignore_merges", false);
  options.byte_fallback = model.flag("byte_fallback", false);
  options.fuse_unknown = model.flag("fuse_unk", false);
  if (const auto unknown = model.get("unk_token")) {
    options.unknown = impl.vocabulary.find(unknown->string());
    require(options.unknown != kNoId, "{} is '{}', but model.vocab lacks it", unknown->place(), unknown->string());
  }
  const std::vector<Merge> merges = load_merges(model.at("merges"), impl.vocabulary);
  impl.bpe = std::make_unique<BpeModel>(impl.vocabulary, merges, options);
  impl.known_words = std::make_unique<ShortWords>(known_words(*impl.bpe, impl.vocabulary, merges));
}

std::optional<JsonValue> JsonValue::get(std::string_view key) const {
  simdjson::dom::element member;
  if (object().at_key(key).get(member) != simdjson::SUCCESS || member.is_null()) return std::nullopt;
  return JsonValue(member, fmt::format("{}{}{}", place_, place_.ends_with(".json") ? ": " : ".", key));
}

JsonValue JsonValue::at(std::string_view key) const {
  auto member = get(key);
  require(member.has_value(), "{} has no '{}'", place_, key);
  return *member;
}

std::string_view JsonValue::string() const {
  std::string_view text;
  require(value_.get(text) == simdjson::SUCCESS, "{} is not a string", place_);
  return text;
}

bool JsonValue::boolean() const {
  bool value = false;
  require(value_.get(value) == simdjson::SUCCESS, "{} is neither true nor false", place_);
  return value;
}

simdjson::dom::object JsonValue::object() const {
  simdjson::dom::object value;
  require(value_.get(value) == simdjson::SUCCESS, "{} is not an object", place_);
  return value;
}

simdjson::dom::array JsonValue::array() const {
  simdjson::dom::array value;
  require(value_.get(value) == simdjson::SUCCESS, "{} is not a list", place_);
  return value;
}

std::int64_t JsonValue::integer() const {
  std::int64_t value = 0;
  require(value_.get(value) == simdjson::SUCCESS, "{} is not an integer", place_);
  return value;
}

bool JsonValue::flag(std::string_view key, bool fallback) const {
  const auto member = get(key);
  return member ? member->boolean() : fallback;
}

std::vector<JsonValue> JsonValue::elements() const {
  std::vector<JsonValue> result;
  for (const simdjson::dom::element element : array()) result.emplace_back(element, fmt::format("{}[{}]", place_, result.size()));
  return result;
}

void require_known_keys(const JsonValue& object, std::initializer_list<std::string_view> known) {
  for (const auto& field : object.object()) {
    bool found = false;
    for (const std::string_view key : known) found |= key == field.key;
    require(found, "{} has the key '{}', which qft does not know", object.place(), field.key);
  }
}

void load_normalizer(const std::optional<JsonValue>& normalizer, Tokenizer::Impl& impl) {
  if (!normalizer) return;
  std::vector<JsonValue> parts;
  flatten(*normalizer, "normalizers", parts);
  for (const JsonValue& part : parts) {
    const std::string_view type = part.at("type").string();
    require(type == "NFC",
            "{}: the normalizer '{}' is not supported; qft supports NFC, Sequence and null, as in byte-level "
            "BPE tokenizers (Qwen, Llama 3, GPT-2, SmolLM2, DeepSeek)",
            part.place(), type);
    impl.nfc = true;
  }
}

void load_pre_tokenizer(const JsonValue& pre_tokenizer, std::optional<bool> prefix_space, PreTokenizer& out) {
  std::vector<JsonValue> parts;
  flatten(pre_tokenizer, "pretokenizers", parts);
  bool byte_level = false;
  for (const JsonValue& part : parts) {
    const std::string_view type = part.at("type").string();
    require(!byte_level, "{}: '{}' follows ByteLevel; qft supports ByteLevel as the last step only", part.place(), type);
    if (type == "ByteLevel") {
      byte_level = true;
      // transformers applies its add_prefix_space to a ByteLevel that is not inside a Sequence.
      add_byte_level(part, pre_tokenizer.at("type").string() == "ByteLevel" ? prefix_space : std::nullopt, out);
    } else if (type == "Split") {
      out.add(parse_split(part));
    } else if (type == "Digits") {
      require_known_keys(part, {"type", "individual_digits"});
      out.add(Digits{part.at("individual_digits").boolean()});
    } else {
      fail(
          "{}: the pre-tokenizer '{}' is not supported; qft supports ByteLevel, Split, Digits and Sequence, as in byte-level "
          "BPE tokenizers",
          part.place(), type);
    }
  }
  require(byte_level, "{}: there is no ByteLevel step, but qft supports byte-level BPE only", pre_tokenizer.place());
}

/// Checks that ByteLevel alone decides the text: the other decoders must leave every token unchanged.
void check_decoder(const JsonValue& decoder, const Vocabulary& vocabulary) {
  std::vector<JsonValue> parts;
  flatten(decoder, "decoders", parts);
  require(!parts.empty() && parts.back().at("type").string() == "ByteLevel",
          "{}: the last decoder is not ByteLevel, but qft supports byte-level BPE only", decoder.place());
  parts.pop_back();
  for (const JsonValue& part : parts) {
    const std::string_view type = part.at("type").string();
    std::string_view needle;
    if (type == "ByteFallback") {
      needle = "<0x";
    } else if (type == "Replace") {
      needle = part.at("pattern").at("String").string();
    } else {
      require(type == "Fuse",
              "{}: the decoder '{}' is not supported; qft supports ByteLevel, preceded by Fuse, Replace "
              "and ByteFallback if they change no token",
              part.place(), type);
    }
    for (std::int32_t id = 0; id < vocabulary.size(); ++id) {
      if (!vocabulary.has(id)) continue;
      const std::string_view token = vocabulary.content(id);
      const bool changed = needle.empty() ? !byte_level::covers(token) : token.find(needle) != std::string_view::npos;
      require(!changed, "{}: the decoder '{}' changes token {} ('{}'); qft supports it only if it changes none", part.place(),
              type, id, token);
    }
  }
}

}  // namespace qft::tokenizer
