#include "describe.h"

#include "qft/core/error.h"

namespace qft::dialects {
namespace {

std::string_view tool_name(ForeignKey::Tool tool) {
  switch (tool) {
    case ForeignKey::Tool::llama_factory:
      return "LLaMA-Factory, transformers";
    case ForeignKey::Tool::llama_factory_v1:
      return "version 1 of LLaMA-Factory";
    case ForeignKey::Tool::swift:
      return "ms-swift";
    case ForeignKey::Tool::other:
      break;
  }
  return "other tools";
}

}  // namespace

std::string describe_foreign(const ForeignKey& key) {
  const std::string head = fmt::format("{} ({})", key.name, tool_name(key.tool));
  switch (key.kind) {
    case ForeignKey::Class::renamed:
      return fmt::format("{} is called {} in qft{}\n", head, key.key,
                         key.words.empty() ? "" : fmt::format("; its values in qft: {}", key.words));
    case ForeignKey::Class::converted:
      return fmt::format(
          "{} sets keys depending on its value: {}\n  qft refuses any other value: "
          "{}\n",
          head, key.words, key.reason);
    case ForeignKey::Class::either:
      return fmt::format("{} has two meanings: {}\n", head, key.reason);
    case ForeignKey::Class::combined:
      return fmt::format("{} works together with other keys of its tool\n", head);
    case ForeignKey::Class::section:
      return fmt::format("{} is a section; qft reads its keys (docs/llama_factory_v1.md)\n", head);
    case ForeignKey::Class::ranks:
      return fmt::format("{} must equal the number of ranks\n", head);
    case ForeignKey::Class::no_effect:
      return fmt::format("{} has no effect in qft: {}\n", head, key.reason);
    case ForeignKey::Class::refused:
      break;
  }
  return fmt::format(
      "qft refuses {}: {}\n{}", head, key.reason,
      key.harmless.empty() ? "" : fmt::format("  accepted values, because they change nothing: {}\n", key.harmless));
}

}  // namespace qft::dialects
