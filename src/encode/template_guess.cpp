#include "template_guess.h"

#include "qft/io/file.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include <nlohmann/json.hpp>

namespace qft::encode {
namespace {

namespace fs = std::filesystem;

/// What a family's chat template has in it, and what tells it from its neighbours. The first row that fits counts.
struct Mark {
  std::string_view name;
  std::initializer_list<std::string_view> has;
  std::initializer_list<std::string_view> lacks;
};

const Mark kMarks[] = {
    {"qwen3_5", {"<|im_start|>", "enable_thinking", "<function="}, {}},
    {"qwen3", {"<|im_start|>", "enable_thinking", "<tools>"}, {}},
    {"qwen", {"<|im_start|>", "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."}, {"enable_thinking"}},
    {"qwen3_nothink", {"<|im_start|>", "<tools>", "messages[0].content"}, {"think", "You are", "<function="}},
    {"smollm2", {"<|im_start|>", "You are a helpful AI assistant named SmolLM, trained by Hugging Face"}, {}},
    {"llama3", {"<|start_header_id|>", "<|eot_id|>"}, {}},
};

nlohmann::json read_json(const fs::path& file) {
  if (!fs::is_regular_file(file)) return {};
  return nlohmann::json::parse(io::read_text_file(file), nullptr, false);
}

// transformers looks for the file of its own first; a list holds templates by name.
std::string chat_template_of(const fs::path& dir) {
  if (fs::is_regular_file(dir / "chat_template.jinja")) return io::read_text_file(dir / "chat_template.jinja");
  const nlohmann::json config = read_json(dir / "tokenizer_config.json");
  const nlohmann::json text = config.is_object() ? config.value("chat_template", nlohmann::json()) : nlohmann::json();
  if (text.is_string()) return text.get<std::string>();
  if (!text.is_array()) return {};
  for (const auto& entry : text)
    if (entry.is_object() && entry.value("name", nlohmann::json()) == "default" && entry.value("template", nlohmann::json()).is_string())
      return entry["template"].get<std::string>();
  return {};
}

}  // namespace

std::string guess_template(const fs::path& tokenizer_dir) {
  const std::string text = chat_template_of(tokenizer_dir);
  const auto has = [&](std::string_view part) { return text.find(part) != text.npos; };
  for (const Mark& mark : kMarks)
    if (std::all_of(mark.has.begin(), mark.has.end(), has) && std::none_of(mark.lacks.begin(), mark.lacks.end(), has))
      return std::string(mark.name);
  return {};
}

}  // namespace qft::encode
