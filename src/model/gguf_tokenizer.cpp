#include "gguf_tokenizer.h"

#include "qft/core/error.h"
#include "qft/core/json.h"
#include "qft/io/file.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace qft::model {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::uint64_t kMostBytes = 256 << 20;

/// ggml's kinds of tokens.
enum TokenKind : std::int32_t { kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5 };

/// How a text is cut before the merges, by the names that llama.cpp has for it.
struct Splitter {
  std::string_view pattern, name;
};
constexpr Splitter kSplitters[] = {
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "qwen2"},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "llama-bpe"}};

json read_object(const fs::path& path) {
  json object = parse_json(io::read_text_file(path, kMostBytes), path.string());
  require(object.is_object(), "'{}' is no JSON object", path.string());
  return object;
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
      "{}: how its pre_tokenizer cuts texts has no name in llama.cpp that qft knows (known: gpt-2, smollm, qwen2, llama-bpe): "
      "export as safetensors, and convert that with llama.cpp's own script",
      where);
}

class Vocabulary {
 public:
  Vocabulary(const json& tokenizer, std::int64_t size, const std::string& where) : where_(where) {
    for (std::int64_t i = 0; i < size; ++i) tokens_.push_back(fmt::format("[PAD{}]", i));
    kinds_.assign(tokens_.size(), kUnused);
    const json& model = tokenizer.at("model");
    for (const auto& [token, id] : model.at("vocab").items()) set(id, token, kNormal);
    for (const json& added : tokenizer.value("added_tokens", json::array()))
      set(added.at("id"), added.at("content").get<std::string>(), added.value("special", false) ? kControl : kUserDefined);
    for (const json& merge : model.at("merges"))
      merges_.push_back(merge.is_string() ? merge.get<std::string>()
                                          : merge.at(0).get<std::string>() + " " + merge.at(1).get<std::string>());
  }

  std::optional<std::uint32_t> find(const std::string& token) const {
    const auto it = std::ranges::find(tokens_, token);
    if (it == tokens_.end()) return {};
    return static_cast<std::uint32_t>(it - tokens_.begin());
  }
  void add_to(io::GgufMetadata& metadata) const {
    metadata.emplace_back("tokenizer.ggml.tokens", tokens_);
    metadata.emplace_back("tokenizer.ggml.token_type", kinds_);
    metadata.emplace_back("tokenizer.ggml.merges", merges_);
  }

 private:
  void set(const json& id, const std::string& token, TokenKind kind) {
    const bool fits = id.is_number_integer() && id >= 0 && id.get<std::int64_t>() < std::ssize(tokens_);
    require(fits, "{}: token '{}' has id {}, but the model's embedding has {} rows: is the tokenizer of this model?", where_,
            token, id.dump(), tokens_.size());
    tokens_[id.get<std::size_t>()] = token;
    kinds_[id.get<std::size_t>()] = kind;
  }

  std::string where_;
  std::vector<std::string> tokens_, merges_;
  std::vector<std::int32_t> kinds_;
};

/// A token of tokenizer_config.json: its text, or an object with that.
std::string token_of(const json& config, const char* key) {
  const json value = config.value(key, json());
  if (value.is_object()) return value.value("content", "");
  return value.is_string() ? value.get<std::string>() : "";
}

/// Whether encoding begins with a special token.
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

std::string chat_template_of(const fs::path& dir, const json& config) {
  if (fs::exists(dir / "chat_template.jinja")) return io::read_text_file(dir / "chat_template.jinja", kMostBytes);
  const json text = config.value("chat_template", json());
  return text.is_string() ? text.get<std::string>() : "";
}

}  // namespace

io::GgufMetadata gguf_tokenizer(const fs::path& dir, std::int64_t vocab_size) {
  const fs::path path = dir / "tokenizer.json";
  const std::string where = fmt::format("'{}'", path.string());
  const json tokenizer = read_object(path);
  const json config = fs::exists(dir / "tokenizer_config.json") ? read_object(dir / "tokenizer_config.json") : json::object();
  io::GgufMetadata metadata;
  try {
    require(tokenizer.at("model").value("type", "BPE") == "BPE", "{}: only tokenizers of kind BPE are exported to GGUF", where);
    metadata.emplace_back("tokenizer.ggml.model", std::string("gpt2"));
    metadata.emplace_back("tokenizer.ggml.pre", splitter_of(tokenizer, where));
    const Vocabulary vocabulary(tokenizer, vocab_size, where);
    vocabulary.add_to(metadata);
    for (const auto& [key, name] :
         {std::pair{"bos_token", "bos"}, {"eos_token", "eos"}, {"pad_token", "padding"}, {"unk_token", "unknown"}})
      if (const auto id = vocabulary.find(token_of(config, key)))
        metadata.emplace_back(fmt::format("tokenizer.ggml.{}_token_id", name), *id);
  } catch (const json::exception& e) {
    fail("{} is no tokenizer that qft reads: {}", where, e.what());
  }
  metadata.emplace_back("tokenizer.ggml.add_bos_token", adds_first(tokenizer, config));
  if (std::string text = chat_template_of(dir, config); !text.empty())
    metadata.emplace_back("tokenizer.chat_template", std::move(text));
  return metadata;
}

}  // namespace qft::model
