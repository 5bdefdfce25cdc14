#include "file_traits.h"

#include "qft/core/convert.h"
#include "qft/core/error.h"
#include "qft/io/model_files.h"
#include "qft/model/spec.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace qft::model {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kChunkElements = 4 << 20;

/// The comparison's result; no_head: the files have no head beside the embeddings.
enum class HeadComparison { no_head, equal, different };

bool same_values(const io::TensorLocation& a, const io::TensorLocation& b) {
  const io::TensorEntry &x = *a.entry, &y = *b.entry;
  if (x.shape != y.shape) return false;
  const std::uint64_t all = x.elements(), x_item = size_of(x.dtype), y_item = size_of(y.dtype);
  const std::size_t room = std::min(all, kChunkElements);
  std::vector<char> x_bytes(room * x_item), y_bytes(room * y_item);
  std::vector<double> x_values, y_values;
  for (std::uint64_t first = 0; first < all; first += room) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(room, all - first));
    a.file->read(x, first * x_item, count * x_item, x_bytes.data());
    b.file->read(y, first * y_item, count * y_item, y_bytes.data());
    if (x.dtype == y.dtype && std::memcmp(x_bytes.data(), y_bytes.data(), count * x_item) == 0) continue;
    x_values.resize(count);
    y_values.resize(count);
    to_double(x.dtype, x_bytes.data(), count, x_values.data());
    to_double(y.dtype, y_bytes.data(), count, y_values.data());
    if (x_values != y_values) return false;
  }
  return true;
}

HeadComparison compare_head(const io::ModelFiles& files, const ModelConfig& config) {
  const std::string embeddings = config.text_prefix + std::string(kEmbedTokens).substr(kTextPrefixes[1].size());
  const io::TensorLocation *head = files.find(kLmHead), *table = files.find(embeddings);
  if (head == nullptr || table == nullptr) return HeadComparison::no_head;
  // Quantised tensors cannot be token tables.
  if (!is_floating(head->entry->dtype) || !is_floating(table->entry->dtype)) return HeadComparison::no_head;
  return same_values(*head, *table) ? HeadComparison::equal : HeadComparison::different;
}

/// Returns a key that changes when a folder's weight files change.
std::string state_of(const fs::path& dir) {
  std::string state = fs::weakly_canonical(dir).string();
  for (const io::WeightNames& way : io::kModelWeights)
    for (const char* name : {way.file, way.index}) {
      std::error_code code;
      const auto bytes = fs::file_size(dir / name, code);
      if (code) continue;
      state += fmt::format(" {} {} {}", name, bytes, fs::last_write_time(dir / name, code).time_since_epoch().count());
    }
  return state;
}

/// Looks at each folder only once: token tables are large.
HeadComparison compare_head_once(const fs::path& dir, const ModelConfig& config) {
  static std::mutex mutex;
  static std::map<std::string, HeadComparison> known;
  const std::lock_guard lock(mutex);
  const std::string state = state_of(dir) + " " + config.text_prefix;
  if (const auto it = known.find(state); it != known.end()) return it->second;
  const HeadComparison found = compare_head(io::ModelFiles::open(dir), config);
  return known.emplace(state, found).first->second;
}

}  // namespace

void set_tied(nlohmann::ordered_json& config, bool tied) {
  config["tie_word_embeddings"] = tied;
  if (const auto text = config.find("text_config"); text != config.end() && text->is_object())
    (*text)["tie_word_embeddings"] = tied;
}

void detect_tied_head(ModelConfig& config, const fs::path& dir) {
  if (!io::holds_model_weights(dir)) return;
  auto whole = nlohmann::ordered_json::parse(config.raw);
  const auto text = whole.find("text_config");
  const bool nested = text != whole.end() && text->is_object();
  const bool by_text = nested && text->value("tie_word_embeddings", nlohmann::ordered_json()) == true;
  if (!config.tie_word_embeddings && !by_text) return;
  HeadComparison found{};
  try {
    found = compare_head_once(dir, config);
  } catch (const Error&) {
    return;  // the reader of the weights reports the problem
  }
  // transformers has two classes for a vision-language model: one follows config.json's value, the other only text_config's.
  const bool tied = found == HeadComparison::no_head || (found == HeadComparison::equal && config.tie_word_embeddings);
  const bool apart = nested && (whole.value("tie_word_embeddings", nlohmann::ordered_json()) != tied ||
                                text->value("tie_word_embeddings", nlohmann::ordered_json(tied)) != tied);
  if (tied == config.tie_word_embeddings && !apart) return;
  if (found == HeadComparison::different)
    config.notes.push_back(fmt::format(
        "'{}': config.json says tie_word_embeddings: true, but the files have a {} that differs from the embeddings: it is used, "
        "as in transformers, and saved models contain it with tie_word_embeddings: false",
        dir.string(), kLmHead));
  else if (tied != config.tie_word_embeddings)
    config.notes.push_back(
        fmt::format("'{}': tie_word_embeddings is false in config.json and true in its text_config, and the files have no {}: "
                    "the embeddings serve as head, and saved models say true in both",
                    dir.string(), kLmHead));
  config.tie_word_embeddings = tied;
  config.rewritten = true;
  set_tied(whole, tied);
  config.raw = whole.dump(2) + "\n";
}

void detect_text_prefix(ModelConfig& config, const std::filesystem::path& dir) {
  constexpr std::string_view kNorm = "norm.weight";
  if (!io::holds_model_weights(dir)) return;
  try {
    const io::ModelFiles files = io::ModelFiles::open(dir);
    if (files.find(config.text_prefix + std::string(kNorm)) != nullptr) return;
    for (const std::string_view prefix : {kTextPrefixes[0], kTextPrefixes[1], std::string_view()})
      if (files.find(std::string(prefix) + std::string(kNorm)) != nullptr) config.text_prefix = prefix;
  } catch (const Error&) {
    return;  // the reader of the weights reports the problem
  }
}

}  // namespace qft::model
