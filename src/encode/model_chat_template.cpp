#include "qft/encode/chat_template.h"
#include "qft/io/companion_files.h"

#include <utility>

namespace qft::encode {

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
