#include "gguf_tokenizer.h"

#include "qft/core/error.h"
#include "qft/core/json.h"
#include "qft/io/companion_files.h"
#include "qft/io/file.h"
#include "qft/io/model_files.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace qft::model {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::uint64_t kMaxTokenizerBytes = 256 << 20;

/// ggml's token types.
enum TokenKind : std::int32_t { kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5 };

/// The pre-tokenizer's regular expression, and llama.cpp's name for it.
struct Splitter {
  std::string_view pattern, name;
};
constexpr Splitter kSplitters[] = {
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "qwen2"},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "llama-bpe"}};

json read_object(const fs::path& path) {
  json object = parse_json(io::read_text_file(path, kMaxTokenizerBytes), path.string());
  require(object.is_object(), "'{}' is not a JSON object", path.string());
  return object;
}

json object_or_empty(const fs::path& path) {
  return fs::is_regular_file(path) ? read_object(path) : json::object();
}

std::string splitter_of(const json& tokenizer, const std::string& where) {
  const json whole = tokenizer.value("pre_tokenizer", json());
  const json steps = whole.is_object() && whole.value("type", "") == "Sequence" ? whole.value("pretokenizers", json::array())
                                                                                : json::array({whole});
  bool digits = false;
  for (const json& step : steps) {
    if (!step.is_object()) break;
    const std::string type = step.value("type", "");
    digits = digits || (type == "Digits" && step.value("individual_digits", false));
    if (type == "ByteLevel" && step.value("use_regex", true)) return digits ? "smollm" : "gpt-2";
    if (type != "Split" || !step.contains("pattern") || !step["pattern"].contains("Regex")) continue;
    for (const Splitter& splitter : kSplitters)
      if (step["pattern"]["Regex"] == splitter.pattern) return std::string(splitter.name);
  }
  fail(
      "{}: qft knows no llama.cpp name for its pre_tokenizer (known: gpt-2, smollm, qwen2, llama-bpe): export as safetensors and "
      "convert that with llama.cpp's own script",
      where);
}

/// Returns the text of a token in tokenizer_config.json, given as text or as an object.
std::string token_of(const json& value) {
  if (value.is_object()) return value.value("content", "");
  return value.is_string() ? value.get<std::string>() : "";
}

/// Special tokens by role: the key is ROLE_token in tokenizer_config.json and ROLE_token_id in config.json.
struct Role {
  const char *role, *gguf;
};
constexpr Role kRoles[] = {{"bos", "bos"},     {"eos", "eos"},   {"unk", "unknown"}, {"sep", "seperator"},  // ggml's spelling
                           {"pad", "padding"}, {"mask", "mask"}, {"cls", nullptr}};

/// Returns true for an added token that acts as special although the files do not mark it; the rule of llama.cpp's
/// convert_hf_to_gguf.py.
bool looks_special(std::string_view token) {
  constexpr std::string_view kWide = "｜";
  constexpr std::string_view kNames[] = {"<pad>", "<mask>", "<2mass>", "[@BOS@]"};
  const auto between = [&](std::string_view open, std::string_view close) {
    return token.size() >= open.size() + close.size() && token.starts_with(open) && token.ends_with(close);
  };
  return std::ranges::find(kNames, token) != std::end(kNames) || between("<|", "|>") ||
         between(std::string("<") + std::string(kWide), std::string(kWide) + ">") || between("<unused", ">");
}

/// Returns the texts that a configuration marks as special: roles and lists of further tokens.
std::set<std::string> called_special(const json& config) {
  std::set<std::string> tokens;
  for (const Role& role : kRoles) tokens.insert(token_of(config.value(fmt::format("{}_token", role.role), json())));
  for (const char* key : {"additional_special_tokens", "extra_special_tokens"})
    for (const json& token : config.value(key, json())) tokens.insert(token_of(token));
  for (const auto& [id, token] : config.value("added_tokens_decoder", json::object()).items())
    if (token.is_object() && token.value("special", false)) tokens.insert(token_of(token));
  return tokens;
}

class Vocabulary {
 public:
  Vocabulary(const json& tokenizer, const json& config, std::int64_t size, const std::string& where)
      : where_(where), tokens_(static_cast<std::size_t>(size)), kinds_(tokens_.size(), kUnused) {
    const json& model = tokenizer.at("model");
    for (const auto& [token, id] : model.at("vocab").items()) set(id, token, kNormal);
    const std::set<std::string> special = called_special(config);
    for (const json& added : tokenizer.value("added_tokens", json::array())) {
      const std::string token = added.at("content");
      const bool control = added.value("special", false) || special.contains(token) || looks_special(token);
      set(added.at("id"), token, control ? kControl : kUserDefined);
    }
    name_unused();
    for (const json& merge : model.at("merges"))
      merges_.push_back(merge.is_string() ? merge.get<std::string>()
                                          : merge.at(0).get<std::string>() + " " + merge.at(1).get<std::string>());
  }

  std::optional<std::uint32_t> find(const std::string& token) const {
    const auto it = ids_.find(token);
    if (it == ids_.end()) return {};
    return it->second;
  }
  bool has(std::int64_t id) const {
    return id >= 0 && id < std::ssize(tokens_) && kinds_[static_cast<std::size_t>(id)] != kUnused;
  }
  void add_to(io::GgufMetadata& metadata) const {
    metadata.emplace_back("tokenizer.ggml.tokens", tokens_);
    metadata.emplace_back("tokenizer.ggml.token_type", kinds_);
    metadata.emplace_back("tokenizer.ggml.merges", merges_);
  }

 private:
  void set(const json& id, const std::string& token, TokenKind kind) {
    const bool fits = id.is_number_integer() && id >= 0 && id.get<std::int64_t>() < std::ssize(tokens_);
    require(fits,
            "{}: token '{}' has id {}, but the model's embedding has {} rows: does the tokenizer belong to this model? qft-ckpt "
            "add-tokens adds rows for more tokens",
            where_, token, id.dump(), tokens_.size());
    const auto row = id.get<std::size_t>();
    tokens_[row] = token;
    kinds_[row] = kind;
    ids_[token] = static_cast<std::uint32_t>(row);
  }

  /// Names rows without a token. llama.cpp finds tokens by text, so each name must be unique, also among real tokens.
  void name_unused() {
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (kinds_[i] != kUnused) continue;
      std::string name = fmt::format("[PAD{}]", i);
      while (ids_.contains(name)) name += "_";
      ids_[name] = static_cast<std::uint32_t>(i);
      tokens_[i] = std::move(name);
    }
  }

  std::string where_;
  std::vector<std::string> tokens_, merges_;
  std::vector<std::int32_t> kinds_;
  std::unordered_map<std::string, std::uint32_t> ids_;
};

/// Returns true if encoding starts with a special token.
bool adds_first(const json& tokenizer, const json& config) {
  if (config.contains("add_bos_token") && config["add_bos_token"].is_boolean()) return config["add_bos_token"];
  const json post = tokenizer.value("post_processor", json());
  if (!post.is_object()) return false;
  for (const json& step : post.value("type", "") == "Sequence" ? post.value("processors", json::array()) : json::array({post})) {
    const json single = step.value("single", json::array());
    if (step.value("type", "") == "TemplateProcessing" && !single.empty() && single.front().contains("SpecialToken")) return true;
  }
  return false;
}

/// Returns the first id under a key, at the root or in text_config: a number or a list.
std::optional<std::int64_t> first_id(const json& config, const std::string& key) {
  for (const json& object : {config, config.value("text_config", json::object())}) {
    const json value = object.is_object() ? object.value(key, json()) : json();
    const json first = value.is_array() && !value.empty() ? value.front() : value;
    if (first.is_number_integer()) return first.get<std::int64_t>();
  }
  return {};
}

/// Takes the id from the tokenizer's configuration or, if that has none, from the model's.
std::optional<std::uint32_t> id_of(const char* role, const Vocabulary& vocabulary, const GgufTokenizerFiles& files,
                                   const json& config) {
  if (std::string_view(role) == "eos" && files.changes.end_id) return static_cast<std::uint32_t>(*files.changes.end_id);
  if (const auto id = vocabulary.find(token_of(config.value(fmt::format("{}_token", role), json())))) return id;
  for (const char* name : {io::kModelConfigFile, io::kGenerationConfigFile})
    if (const auto id = first_id(object_or_empty(files.model / name), fmt::format("{}_token_id", role));
        id && vocabulary.has(*id))
      return static_cast<std::uint32_t>(*id);
  return {};
}

void add_templates(const GgufTokenizerFiles& files, io::GgufMetadata& metadata) {
  io::ChatTemplates found = io::read_chat_templates(files.tokenizer);
  if (!found.main && found.named.empty()) found = io::read_chat_templates(files.model);
  if (files.changes.chat_template) found = with_trained_template(std::move(found), *files.changes.chat_template);
  std::vector<std::string> names;
  for (const auto& [name, text] : found.named) {
    std::string plain = name;
    for (char& c : plain)
      if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
    if (plain.empty() || std::ranges::find(names, plain) != names.end()) continue;
    metadata.emplace_back(fmt::format("tokenizer.chat_template.{}", plain), text);
    names.push_back(plain);
  }
  if (!names.empty()) metadata.emplace_back("tokenizer.chat_templates", names);
  if (found.main) metadata.emplace_back("tokenizer.chat_template", *found.main);
}

}  // namespace

io::GgufMetadata gguf_tokenizer(const GgufTokenizerFiles& files, std::int64_t vocab_size) {
  const fs::path path = files.tokenizer / io::kTokenizerFile;
  const std::string where = fmt::format("'{}'", path.string());
  const json tokenizer = read_object(path);
  json config = object_or_empty(files.tokenizer / io::kSpecialTokensFile);
  config.update(object_or_empty(files.tokenizer / io::kTokenizerConfigFile));
  io::GgufMetadata metadata;
  try {
    require(tokenizer.at("model").value("type", "BPE") == "BPE", "{}: only BPE tokenizers can be exported to GGUF", where);
    metadata.emplace_back("tokenizer.ggml.model", std::string("gpt2"));
    metadata.emplace_back("tokenizer.ggml.pre", splitter_of(tokenizer, where));
    const Vocabulary vocabulary(tokenizer, config, vocab_size, where);
    vocabulary.add_to(metadata);
    for (const Role& role : kRoles)
      if (const auto id = role.gguf != nullptr ? id_of(role.role, vocabulary, files, config) : std::nullopt)
        metadata.emplace_back(fmt::format("tokenizer.ggml.{}_token_id", role.gguf), *id);
  } catch (const json::exception& e) {
    fail("{}: qft cannot read this tokenizer: {}", where, e.what());
  }
  metadata.emplace_back("tokenizer.ggml.add_bos_token", adds_first(tokenizer, config));
  add_templates(files, metadata);
  return metadata;
}

}  // namespace qft::model
