#include "tokenizer_files.h"

#include "qft/core/error.h"
#include "qft/core/json.h"
#include "qft/io/file.h"

#include <algorithm>
#include <utility>

namespace qft::model {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::uint64_t kMaxTokenizerBytes = 256 << 20;
constexpr const char* kTokenizer = "tokenizer.json";
constexpr const char* kConfig = "tokenizer_config.json";
constexpr const char* kAdded = "added_tokens.json";
constexpr const char* kDecoder = "added_tokens_decoder";

/// Reads an object; null if the file does not exist.
Json read_object(const fs::path& path) {
  if (!fs::exists(path)) return nullptr;
  const std::string text = io::read_text_file(path, kMaxTokenizerBytes);
  parse_json(text, path.string());  // reports the place of a syntax error
  Json object = Json::parse(text);
  require(object.is_object(), "'{}' is not a JSON object", path.string());
  return object;
}

void write_object(io::Storage& storage, const fs::path& path, const Json& object) {
  if (!object.is_null()) io::write_file(storage, path, object.dump(2) + "\n");
}

}  // namespace

TokenizerFiles::TokenizerFiles(fs::path dir)
    : dir_(std::move(dir)),
      tokenizer_(read_object(dir_ / kTokenizer)),
      config_(read_object(dir_ / kConfig)),
      added_(read_object(dir_ / kAdded)) {
  require(!tokenizer_.is_null(), "'{}' has no {} to add tokens to", dir_.string(), kTokenizer);
  const auto model = tokenizer_.find("model");
  const bool known = model != tokenizer_.end() && model->is_object() && model->contains("vocab") && (*model)["vocab"].is_object();
  require(known, "'{}' has no vocabulary with words and ids under model.vocab: only byte-level BPE is implemented",
          (dir_ / kTokenizer).string());
  for (const auto& [word, id] : (*model)["vocab"].items())
    if (id.is_number_integer()) next_ = std::max(next_, id.get<std::int64_t>() + 1);
  if (!tokenizer_.contains("added_tokens") || tokenizer_["added_tokens"].is_null()) tokenizer_["added_tokens"] = Json::array();
  for (const Json& token : tokenizer_["added_tokens"])
    if (token.is_object() && token.contains("id")) next_ = std::max(next_, token["id"].get<std::int64_t>() + 1);
}

bool TokenizerFiles::has(const std::string& token) const {
  if (tokenizer_.at("model").at("vocab").contains(token)) return true;
  const Json& added = tokenizer_.at("added_tokens");
  return std::ranges::any_of(added, [&](const Json& t) { return t.is_object() && t.value("content", "") == token; });
}

std::int64_t TokenizerFiles::add(const std::string& token, bool special) {
  const std::int64_t id = next_++;
  Json flags = {{"content", token}, {"single_word", false},   {"lstrip", false},
                {"rstrip", false},  {"normalized", !special}, {"special", special}};
  if (!config_.is_null() && config_.contains(kDecoder) && config_[kDecoder].is_object())
    config_[kDecoder][std::to_string(id)] = flags;
  if (!added_.is_null()) added_[token] = id;
  Json numbered = {{"id", id}};
  numbered.update(flags);
  tokenizer_["added_tokens"].push_back(std::move(numbered));
  return id;
}

void TokenizerFiles::write(io::Storage& storage, const fs::path& dir) const {
  write_object(storage, dir / kTokenizer, tokenizer_);
  write_object(storage, dir / kConfig, config_);
  write_object(storage, dir / kAdded, added_);
}

}  // namespace qft::model
