#include "qft/engine/token_rows.h"

#include "qft/core/error.h"
#include "qft/core/log.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

namespace qft::engine {
namespace {

constexpr std::size_t kMostNamed = 4;
constexpr const char* kRemedy =
    "Add rows for new tokens with qft-ckpt add-tokens (list the tokens in --tokens or --special), or use the model's own "
    "tokenizer (tokenizer_name_or_path)";

std::string word_of(const tokenizer::Tokenizer& tokenizer, std::int32_t id) {
  try {
    return fmt::format("'{}' (id {})", tokenizer.id_to_token(id), id);
  } catch (const Error&) {
    return {};  // ids may have gaps
  }
}

std::string words_of(const tokenizer::Tokenizer& tokenizer, const std::set<std::int32_t>& ids) {
  std::vector<std::string> words;
  std::size_t more = 0;
  for (const std::int32_t id : ids) {
    std::string word = word_of(tokenizer, id);
    if (!word.empty() && words.size() < kMostNamed)
      words.push_back(std::move(word));
    else if (!word.empty())
      ++more;
  }
  return fmt::format("{}{}", fmt::join(words, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
}

}  // namespace

std::string tokens_beyond(const tokenizer::Tokenizer& tokenizer, std::int64_t rows) {
  std::set<std::int32_t> ids;
  for (std::int64_t id = rows; id < tokenizer.vocab_size(); ++id) ids.insert(static_cast<std::int32_t>(id));
  return words_of(tokenizer, ids);
}

void require_token_rows(const tokenizer::Tokenizer& tokenizer, const std::string& path, const std::string& model,
                        std::int64_t rows) {
  if (const std::string words = tokens_beyond(tokenizer, rows); !words.empty())
    fail_config("tokenizer '{}' (with the template) has {} token ids, model '{}' has rows for {}: none for {}. {}", path,
                tokenizer.vocab_size(), model, rows, words, kRemedy);
}

void require_token_rows(const tokenizer::Tokenizer& tokenizer, std::span<const std::int32_t> prompt, const std::string& model,
                        std::int64_t rows) {
  std::set<std::int32_t> ids;
  std::ranges::copy_if(prompt, std::inserter(ids, ids.end()), [&](std::int32_t id) { return id >= rows; });
  if (!ids.empty())
    fail_config("the prompt has tokens beyond the {1} rows of model '{0}': {2}. {3}", model, rows, words_of(tokenizer, ids),
                kRemedy);
}

void warn_of_token_rows(const tokenizer::Tokenizer& tokenizer, const std::string& model, std::int64_t rows) {
  if (const std::string words = tokens_beyond(tokenizer, rows); !words.empty())
    log::warn_once(
        fmt::format("the tokenizer has tokens beyond the {1} rows of model '{0}': {2}. No prompt may have them, "
                    "and no answer will. {3}",
                    model, rows, words, kRemedy));
}

}  // namespace qft::engine
