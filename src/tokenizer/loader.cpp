#include "loader.h"

#include "qft/core/error.h"
#include "qft/core/file_ending.h"
#include "qft/core/hash.h"
#include "qft/core/json.h"
#include "qft/core/member.h"

#include <algorithm>
#include <charconv>

#include "unicode.h"

namespace qft::tokenizer {
namespace {

constexpr std::string_view kNamedTokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                             "pad_token", "cls_token", "mask_token"};
constexpr std::string_view kTokenLists[] = {"additional_special_tokens", "extra_special_tokens"};

/// A parsed JSON file; the parser owns the strings.
struct JsonFile {
  simdjson::padded_string text;
  simdjson::dom::parser parser;
  std::optional<JsonValue> root;

  JsonFile(const std::filesystem::path& dir, const char* name) {
    const auto path = member_of(dir, name);
    const auto error = simdjson::padded_string::load(path.string()).get(text);
    require(error == simdjson::SUCCESS, "cannot read {}: {}", path.string(), simdjson::error_message(error));
    const std::string fault = describe_non_text(std::string_view(text), path);
    require(fault.empty(), "{}", fault);
    if (path.filename() == "tokenizer_config.json") drop_length_limit(path.string());
    simdjson::dom::element element;
    const auto broken = parser.parse(text).get(element);
    if (broken != simdjson::SUCCESS) {
      parse_json(std::string_view(text), path.string());  // reports place and reason, which simdjson does not
      fail("{} is not valid JSON: {}; fetch the file again", path.string(), simdjson::error_message(broken));
    }
    root.emplace(element, path.string());
    root->object();
  }

  /// Replaces transformers' "no limit", 10^30, which simdjson cannot parse; qft does not use the value.
  void drop_length_limit(const std::string& path) {
    auto config = parse_json(std::string_view(text), path);
    if (!config.is_object()) return;  // the caller reports the error
    config.erase("model_max_length");
    text = simdjson::padded_string(config.dump());
  }
};

std::optional<JsonValue> read_optional(const std::filesystem::path& dir, const char* name, std::optional<JsonFile>& file) {
  if (!std::filesystem::exists(dir / name)) return std::nullopt;
  file.emplace(dir, name);
  return file->root;
}

/// Returns the content of a special token given as a string or as an object.
std::string_view token_content(const JsonValue& value) {
  return value.is_string() ? value.string() : value.at("content").string();
}

/// The settings that the configuration files add to tokenizer.json.
class Config {
 public:
  explicit Config(const std::filesystem::path& dir) : config_(read_optional(dir, "tokenizer_config.json", config_file_)) {
    // transformers reads the two older files only if tokenizer_config.json does not list the added tokens.
    if (config_ && config_->get("added_tokens_decoder")) return;
    map_ = read_optional(dir, "special_tokens_map.json", map_file_);
    added_ = read_optional(dir, "added_tokens.json", added_file_);
  }

  std::optional<JsonValue> get(std::string_view key) const {
    if (map_)
      if (auto value = map_->get(key)) return value;
    return config_ ? config_->get(key) : std::nullopt;
  }

  /// Returns the contents of all tokens with a special role.
  std::vector<std::string_view> special_tokens() const {
    std::vector<std::string_view> result;
    for (const std::string_view key : kNamedTokens)
      if (const auto value = get(key)) result.push_back(token_content(*value));
    for (const std::string_view key : kTokenLists) {
      const auto value = get(key);
      if (!value) continue;
      if (value->is_array())
        for (const JsonValue& token : value->elements()) result.push_back(token_content(token));
      else
        for (const auto& field : value->object()) result.push_back(token_content({field.value, value->place()}));
    }
    return result;
  }

  /// Returns the added tokens that the configuration lists, by id.
  std::vector<AddedToken> listed_tokens() const {
    std::vector<AddedToken> result;
    if (const auto listed = get("added_tokens_decoder")) {
      for (const auto& field : listed->object()) {
        AddedToken token = parse_added_token({field.value, fmt::format("{}.{}", listed->place(), field.key)});
        const auto [end, error] = std::from_chars(field.key.begin(), field.key.end(), token.id);
        require(error == std::errc() && end == field.key.end(), "{}: '{}' is not an id", listed->place(), field.key);
        result.push_back(std::move(token));
      }
    } else if (added_) {
      for (const auto& field : added_->object()) {
        AddedToken token;
        token.content = field.key;
        token.id = static_cast<std::int32_t>(JsonValue(field.value, added_->place()).integer());
        token.normalized = true;
        result.push_back(std::move(token));
      }
    }
    std::sort(result.begin(), result.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
    return result;
  }
  bool flags_are_listed() const { return get("added_tokens_decoder").has_value(); }

 private:
  std::optional<JsonFile> config_file_, map_file_, added_file_;
  std::optional<JsonValue> config_, map_, added_;
};

/// Combines the added tokens of tokenizer.json and of the configuration like transformers: the configuration's flags take
/// precedence, and a token that has a role but is not listed is added as special.
void load_added_tokens(const JsonValue& root, const Config& config, std::span<const std::string> more_special,
                       AddedTokenList& list) {
  if (const auto tokens = root.get("added_tokens"))
    for (const JsonValue& token : tokens->elements()) list.add(parse_added_token(token), token.place());
  const std::vector<std::string_view> roles = config.special_tokens();
  std::vector<AddedToken> listed = config.listed_tokens();
  for (AddedToken& token : listed) {
    const AddedToken* known = list.find(token.content);
    if (known != nullptr && (!config.flags_are_listed() || known->same_flags(token))) continue;
    if (std::find(roles.begin(), roles.end(), token.content) != roles.end()) {
      token.special = true;
      if (!config.flags_are_listed()) token.normalized = false;
    }
    list.add(token, "tokenizer_config.json or added_tokens.json");
  }
  for (const std::string_view role : roles) {
    if (role.empty() || list.find(role) != nullptr) continue;
    AddedToken token;
    token.content = role;
    token.special = true;
    list.add(token, "tokenizer_config.json");
  }
  for (const std::string& content : more_special) {
    if (list.find(content) != nullptr) continue;
    AddedToken token;
    token.content = content;
    token.special = true;
    list.add(token, "the tokens to add");
  }
}

void build_matchers(const AddedTokenList& list, bool split_special, Tokenizer::Impl& impl) {
  impl.special.assign(impl.vocabulary.size(), false);
  for (const AddedToken& token : list.tokens()) {
    impl.special[token.id] = token.special;
    if (split_special && token.special) continue;
    std::string normalized;
    if (!token.normalized)
      impl.raw_tokens.add(token, token.content);
    else if (impl.nfc && normalize_nfc(token.content, normalized))
      impl.normalized_tokens.add(token, normalized);
    else
      impl.normalized_tokens.add(token, token.content);
  }
}

std::string hash_of(std::string_view tokenizer_json, const AddedTokenList& added, std::string_view settings) {
  Hasher hasher;
  hasher.update(tokenizer_json);
  for (const AddedToken& t : added.tokens())
    hasher.update(fmt::format("\n{} {}{}{}{}{} {}", t.id, t.special, t.single_word, t.lstrip, t.rstrip, t.normalized, t.content));
  hasher.update("\n");
  hasher.update(settings);
  return hasher.hex();
}

}  // namespace

AddedToken parse_added_token(const JsonValue& value) {
  require_known_keys(value, {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special", "__type"});
  AddedToken token;
  token.content = value.at("content").string();
  if (const auto id = value.get("id")) {
    require(id->integer() >= 0 && id->integer() <= kMaxId, "{} is {}, which is outside [0, {}]", id->place(), id->integer(),
            kMaxId);
    token.id = static_cast<std::int32_t>(id->integer());
  }
  token.special = value.flag("special", false);
  token.single_word = value.flag("single_word", false);
  token.lstrip = value.flag("lstrip", false);
  token.rstrip = value.flag("rstrip", false);
  token.normalized = value.flag("normalized", !token.special);
  return token;
}

void AddedTokenList::add(AddedToken token, std::string_view place) {
  if (token.content.empty()) return;
  std::int32_t id = vocabulary_.find(token.content);
  const bool fresh = id == kNoId;
  if (fresh) id = std::max(next_id_, vocabulary_.model_count());
  require(token.id == kNoId || token.id == id,
          "{}: the added token '{}' has id {}, but HF tokenizers would give it {}; number the added tokens "
          "contiguously after the vocabulary",
          place, token.content, token.id, id);
  token.id = id;
  if (fresh) {
    std::string normalized;
    const bool changed = token.normalized && nfc_ && normalize_nfc(token.content, normalized);
    vocabulary_.add(token.content, id, byte_level::decode(changed ? normalized : token.content), false);
  }
  next_id_ = std::max(next_id_, id + 1);
  const auto [it, added] = index_.emplace(token.content, tokens_.size());
  if (added) {
    tokens_.push_back(std::move(token));
  } else {
    token.special |= tokens_[it->second].special;
    tokens_[it->second] = std::move(token);
  }
}

const AddedToken* AddedTokenList::find(std::string_view content) const {
  const auto it = index_.find(std::string(content));
  return it == index_.end() ? nullptr : &tokens_[it->second];
}

void load_tokenizer(const std::filesystem::path& dir, std::span<const std::string> more_special, Tokenizer::Impl& impl) {
  const std::filesystem::path path = dir / "tokenizer.json";
  require(std::filesystem::exists(path),
          "{} does not exist: model_name_or_path must be a folder with a fast tokenizer "
          "(transformers writes one with AutoTokenizer.from_pretrained(...).save_pretrained(...))",
          path.string());
  const JsonFile file(dir, "tokenizer.json");
  const JsonValue& root = *file.root;
  const Config config(dir);
  if (const auto version = root.get("version"))
    require(version->string() == "1.0", "{} is '{}'; qft supports 1.0", version->place(), version->string());
  load_model(root.at("model"), impl);
  load_normalizer(root.get("normalizer"), impl);
  std::optional<bool> prefix_space;
  if (const auto value = config.get("add_prefix_space")) prefix_space = value->boolean();
  load_pre_tokenizer(root.at("pre_tokenizer"), prefix_space, impl.pre_tokenizer);
  // Truncation and padding are left to the caller, as in transformers. A post_processor only adds special tokens around the
  // text or trims offsets. Neither affects encode().
  AddedTokenList added(impl.vocabulary, impl.nfc);
  load_added_tokens(root, config, more_special, added);
  check_decoder(root.at("decoder"), impl.vocabulary);
  const auto split_special = config.get("split_special_tokens");
  const bool splits = split_special && split_special->boolean();
  build_matchers(added, splits, impl);
  const auto role = [&](std::string_view key) -> std::optional<std::int32_t> {
    const auto value = config.get(key);
    if (!value || token_content(*value).empty()) return std::nullopt;
    return impl.vocabulary.find(token_content(*value));
  };
  impl.bos = role("bos_token");
  impl.eos = role("eos_token");
  impl.pad = role("pad_token");
  impl.unk = role("unk_token");
  impl.hash =
      hash_of(file.text, added,
              fmt::format("prefix {} split {} bos {} eos {} pad {} unk {}", prefix_space ? int{*prefix_space} : -1, splits,
                          impl.bos.value_or(-1), impl.eos.value_or(-1), impl.pad.value_or(-1), impl.unk.value_or(-1)));
}

}  // namespace qft::tokenizer
