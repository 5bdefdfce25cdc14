// Loads the model of tokenizer.json, and reads JSON values with their places.
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

}  // namespace qft::tokenizer
