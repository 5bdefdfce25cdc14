#include "template_defaults.h"

#include "qft/io/companion_files.h"
#include "qft/io/file.h"

#include <optional>

#include <nlohmann/json.hpp>

namespace qft::encode {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// Returns the pieces that a tokenizer puts around one text, with the text; nullopt if it adds nothing.
std::optional<json> pieces_around_text(const fs::path& tokenizer_file) {
  if (!fs::is_regular_file(tokenizer_file)) return std::nullopt;
  const json post = io::read_json(tokenizer_file).value("post_processor", json());
  if (!post.is_object()) return std::nullopt;
  for (const json& step : post.value("processors", json::array({post})))
    if (step.is_object() && step.value("type", "") == "TemplateProcessing") return step.value("single", json());
  return std::nullopt;
}

/// Returns true if sentence-transformers puts texts through the chat template.
bool uses_messages(const fs::path& settings_file) {
  if (!fs::is_regular_file(settings_file)) return false;
  const json settings = io::read_json(settings_file);
  return settings.is_object() && settings.value("modality_config", json::object()).contains("message");
}

}  // namespace

bool embeds_plain_texts(const fs::path& dir, std::string_view end) {
  if (const auto pieces = pieces_around_text(dir / io::kTokenizerFile))
    return pieces->is_array() && pieces->size() == 2 && pieces->at(0).contains("Sequence") &&
           pieces->at(1).contains("SpecialToken") && pieces->at(1)["SpecialToken"].value("id", "") == end;
  return fs::is_regular_file(dir / "modules.json") && !uses_messages(dir / "sentence_bert_config.json");
}

}  // namespace qft::encode
