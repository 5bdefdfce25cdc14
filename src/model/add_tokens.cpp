#include "qft/model/add_tokens.h"

#include "qft/core/convert.h"
#include "qft/core/error.h"
#include "qft/core/json.h"
#include "qft/io/file.h"
#include "qft/io/model_files.h"
#include "qft/model/config.h"
#include "qft/model/spec.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <utility>

#include "rewritten_model.h"
#include "tensor_check.h"
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace qft::model {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// tokenizer.json and the files beside it that list added tokens, changed as transformers' add_tokens() would.
class TokenizerFiles {
 public:
  /// Throws Error if `dir` has no tokenizer.json, or one in another form.
  explicit TokenizerFiles(std::filesystem::path dir);

  bool has(const std::string& token) const;
  /// Returns the largest id in use plus one.
  std::int64_t size() const { return next_; }
  /// Returns the token's id, the next free one. The tokenizer must not have the token.
  std::int64_t add(const std::string& token, bool special);
  /// Writes the changed files.
  void write(io::Storage& storage, const std::filesystem::path& dir) const;

 private:
  std::filesystem::path dir_;
  nlohmann::ordered_json tokenizer_, config_, added_;  ///< null: there is no such file
  std::int64_t next_ = 0;
};

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

constexpr std::int64_t kMultiple = 64;  ///< rows; LLaMA-Factory pads resized embeddings to this multiple

/// Returns the tensors with one row per token.
std::set<std::string> tables_of(const ModelConfig& config, const io::ModelFiles& files) {
  std::set<std::string> tables;
  for (const std::string& name : files.names()) {
    const auto& shape = files.at(name).entry->shape;
    const bool is_table = name.ends_with("embed_tokens.weight") || name.ends_with("lm_head.weight");
    if (is_table && shape.size() == 2 && shape[0] == config.vocab_size) tables.insert(name);
  }
  require(!tables.empty(), "'{}' has no embed_tokens.weight with {} rows", files.dir().string(), config.vocab_size);
  return tables;
}

/// Ends of the row ranges: known tokens, new tokens in existing rows, rows without a token, inserted rows.
struct RowRanges {
  std::int64_t known, tokens, before, all;
  bool is_new(std::int64_t row) const { return (row >= known && row < tokens) || row >= before; }
};

/// Reads a table twice: for its mean, and to write it.
class Rows {
 public:
  Rows(const io::TensorLocation& from, const RowRanges& rows)
      : from_(from), dtype_(from.entry->dtype), width_(from.entry->shape[1]), rows_(rows) {
    if (!is_floating(dtype_)) fail_config("{} is not floating point: add tokens to the 16-bit model", from.entry->name);
  }

  void write(io::ModelWriter& writer) const {
    const std::vector<float> mean = mean_of_known();
    std::mt19937_64 engine(42);
    std::normal_distribution<float> noise(0.0F, 1.0F / std::sqrt(static_cast<float>(width_)));
    std::vector<char> bytes(row_bytes());
    std::vector<float> values(static_cast<std::size_t>(width_));
    for (std::int64_t row = 0; row < rows_.all; ++row) {
      if (rows_.is_new(row)) {
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = mean[i] + noise(engine);
        from_float(dtype_, values.data(), values.size(), bytes.data());
      } else {
        from_.file->read(*from_.entry, static_cast<std::uint64_t>(row) * row_bytes(), row_bytes(), bytes.data());
      }
      writer.append(bytes.data(), bytes.size());
    }
  }

 private:
  std::uint64_t row_bytes() const { return from_.entry->bytes() / static_cast<std::uint64_t>(from_.entry->shape[0]); }

  std::vector<float> mean_of_known() const {
    std::vector<double> sum(static_cast<std::size_t>(width_)), row(sum.size());
    std::vector<char> bytes(row_bytes());
    for (std::int64_t i = 0; i < rows_.known; ++i) {
      from_.file->read(*from_.entry, static_cast<std::uint64_t>(i) * row_bytes(), row_bytes(), bytes.data());
      to_double(dtype_, bytes.data(), row.size(), row.data());
      for (std::size_t k = 0; k < row.size(); ++k) sum[k] += row[k];
    }
    std::vector<float> mean(sum.size());
    std::ranges::transform(sum, mean.begin(), [&](double s) { return static_cast<float>(s / static_cast<double>(rows_.known)); });
    return mean;
  }

  io::TensorLocation from_;
  DType dtype_;
  std::int64_t width_;
  RowRanges rows_;
};

/// Adds the tokens that the tokenizer does not have.
AddedTokens add_to(TokenizerFiles& tokenizer, const AddTokensRequest& request) {
  AddedTokens result;
  const auto add = [&](const std::vector<std::string>& tokens, bool special) {
    for (const std::string& token : tokens) {
      if (token.empty()) fail_config("a token to add is empty: give comma-separated words");
      if (tokenizer.has(token))
        result.already_known.push_back(token);
      else
        result.ids.push_back(tokenizer.add(token, special));
    }
  };
  add(request.tokens, false);
  add(request.special, true);
  if (result.ids.empty())
    fail_config("nothing to add: {}", result.already_known.empty()
                                          ? std::string("no tokens are given")
                                          : fmt::format("the tokenizer in '{}' already has {}", request.base.string(),
                                                        fmt::join(result.already_known, ", ")));
  return result;
}

}  // namespace

AddedTokens add_tokens(io::Storage& storage, const AddTokensRequest& request) {
  io::require_absent_or_empty(request.target, "the directory of the model with more tokens");
  const ModelConfig config = ModelConfig::load(request.base);
  if (config.stored) fail_config("'{}' is quantised in its files: add tokens to the 16-bit model", request.base.string());
  const io::ModelFiles files = io::ModelFiles::open(request.base);
  reject_unexpected_tensors(ModelSpec::build(config, Finetuning::full, {}), files);
  TokenizerFiles tokenizer(request.base);
  const std::int64_t known = std::min(tokenizer.size(), config.vocab_size);
  AddedTokens result = add_to(tokenizer, request);
  result.rows_before = result.rows = config.vocab_size;
  if (tokenizer.size() > config.vocab_size) result.rows = (tokenizer.size() + kMultiple - 1) / kMultiple * kMultiple;

  const RowRanges rows{known, tokenizer.size(), result.rows_before, result.rows};
  const std::set<std::string> tables = tables_of(config, files);
  std::vector<io::TensorSpec> tensors;
  for (const std::string& name : files.names()) {
    const io::TensorEntry& entry = *files.at(name).entry;
    tensors.push_back({name, entry.dtype, entry.shape});
    if (tables.contains(name)) tensors.back().shape[0] = result.rows;
  }
  io::CommitDir commit(storage, request.target);
  io::ModelWriter writer(storage, commit.temp(), tensors, request.max_shard_bytes);
  for (const io::TensorSpec& tensor : tensors) {
    const io::TensorLocation& from = files.at(tensor.name);
    tables.contains(tensor.name) ? Rows(from, rows).write(writer) : copy_tensor(from, writer);
  }
  writer.finish();
  copy_configs(storage, request.base, commit.temp(), config, [&](nlohmann::ordered_json& object) {
    if (object.contains("vocab_size")) object["vocab_size"] = result.rows;
  });
  tokenizer.write(storage, commit.temp());
  commit.commit();
  return result;
}

}  // namespace qft::model
