// Finds YAML templates: a file given by path, files in folders, built-in templates.
#include "qft/core/error.h"
#include "qft/core/file_ending.h"
#include "qft/core/program.h"
#include "qft/encode/chat_template.h"
#include "qft/encode/template_spec.h"
#include "qft/io/companion_files.h"
#include "qft/io/file.h"

#include <set>
#include <utility>

#include "embedded_templates.h"

namespace qft::encode {
namespace {

namespace fs = std::filesystem;

bool is_path(const std::string& name) {
  return name.find('/') != name.npos || is_yaml_file(name);
}

std::vector<fs::path> folders() {
  return config_folders("QFT_TEMPLATES", "templates");
}

TemplateSpec read_template(const fs::path& file) {
  return parse_template(io::read_text_file(file), file.string());
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
    if (!fs::is_regular_file(name)) fail_config("template: there is no file {}", name);
    return read_template(name);
  }
  for (const fs::path& folder : folders()) {
    const fs::path file = folder / (name + ".yaml");
    if (!name.empty() && fs::is_regular_file(file)) return read_template(file);
  }
  for (const EmbeddedTemplate& t : embedded_templates())
    if (t.name == name) return parse_template(t.yaml, fmt::format("built-in template {}", name));
  fail_config("template: there is no '{}'; choose one of {}, or give the path of a .yaml file", name, list_templates());
}

/// The named template that transformers uses if tools are given.
constexpr const char* kToolUse = "tool_use";

std::optional<ModelChatTemplate> find_chat_template(const std::filesystem::path& dir) {
  io::ChatTemplates templates = io::read_chat_templates(dir);
  if (!templates.main || templates.main->empty()) return std::nullopt;
  ModelChatTemplate found{std::move(*templates.main), {}, dir.string()};
  if (const auto tool_use = templates.named.find(kToolUse); tool_use != templates.named.end()) found.tool_use = tool_use->second;
  return found;
}

}  // namespace qft::encode
