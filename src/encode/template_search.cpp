// Where templates are looked for: a file given by path, folders of files, the ones in the binary; and which one a model has.
#include "qft/core/error.h"
#include "qft/core/program.h"
#include "qft/encode/template_spec.h"
#include "qft/io/file.h"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <set>
#include <string_view>

#include "embedded_templates.h"
#include <nlohmann/json.hpp>

namespace qft::encode {
namespace {

namespace fs = std::filesystem;

bool is_path(const std::string& name) {
  return name.find('/') != name.npos || name.ends_with(".yaml") || name.ends_with(".yml");
}

// $QFT_TEMPLATES, and share/qft/configs/templates beside the folder of the running program.
std::vector<fs::path> folders() {
  std::vector<fs::path> result;
  if (const char* dir = std::getenv("QFT_TEMPLATES"); dir && *dir) result.emplace_back(dir);
  if (const fs::path program = program_folder(); !program.empty())
    result.push_back(program.parent_path() / "share/qft/configs/templates");
  return result;
}

TemplateSpec read_template(const fs::path& file) {
  return parse_template(io::read_text_file(file), file.string());
}

/// What a family's chat template has in it, and what tells it from its neighbours. The first row that fits counts.
struct Mark {
  std::string_view name;
  std::initializer_list<std::string_view> has;
  std::initializer_list<std::string_view> lacks;
};

const Mark kTemplateMarks[] = {
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
    if (entry.is_object() && entry.value("name", nlohmann::json()) == "default" &&
        entry.value("template", nlohmann::json()).is_string())
      return entry["template"].get<std::string>();
  return {};
}

}  // namespace

std::string list_templates() {
  std::string trained, packed;
  for (const std::string& name : template_names()) {
    std::string& list = find_template(name).pack_only.empty() ? trained : packed;
    list += (list.empty() ? "" : ", ") + name;
  }
  return packed.empty() ? trained : fmt::format("{}, and for packs only {}", trained, packed);
}

std::vector<std::string> template_names() {
  std::set<std::string> names;
  for (const EmbeddedTemplate& t : embedded_templates()) names.emplace(t.name);
  for (const fs::path& folder : folders()) {
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error))
      if (entry.path().extension() == ".yaml") names.insert(entry.path().stem().string());
  }
  return {names.begin(), names.end()};
}

TemplateSpec find_template(const std::string& name) {
  if (is_path(name)) {
    if (!fs::is_regular_file(name)) fail_config("template: {} is no file", name);
    return read_template(name);
  }
  for (const fs::path& folder : folders()) {
    const fs::path file = folder / (name + ".yaml");
    if (!name.empty() && fs::is_regular_file(file)) return read_template(file);
  }
  for (const EmbeddedTemplate& t : embedded_templates())
    if (t.name == name) return parse_template(t.yaml, fmt::format("built-in template {}", name));
  fail_config("template: there is no '{}'; there are {}; a path to a .yaml file works too", name, list_templates());
}

std::string guess_template(const fs::path& tokenizer_dir) {
  const std::string text = chat_template_of(tokenizer_dir);
  const auto has = [&](std::string_view part) { return text.find(part) != text.npos; };
  for (const Mark& mark : kTemplateMarks)
    if (std::all_of(mark.has.begin(), mark.has.end(), has) && std::none_of(mark.lacks.begin(), mark.lacks.end(), has))
      return std::string(mark.name);
  return {};
}

}  // namespace qft::encode
