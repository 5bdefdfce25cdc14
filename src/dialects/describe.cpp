#include "describe.h"

#include "qft/core/error.h"

#include <fmt/ranges.h>

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

std::string words_of(std::initializer_list<Word> words) {
  std::string text;
  for (const Word& word : words) text += fmt::format("{}{}={}", text.empty() ? "" : "|", word.theirs, word.ours);
  return text;
}

std::string cases_of(const Converted& row) {
  std::string text;
  for (const Case& c : row.cases) {
    text += fmt::format("{}{}:", text.empty() ? "" : "; ", fmt::join(c.values, "|"));
    for (const Assignment& set : c.sets) text += fmt::format(" {}{}={}", set.key, set.if_unset ? "?" : "", set.value);
  }
  return text;
}

}  // namespace

std::string describe_foreign(const ForeignKey& key) {
  const std::string head = fmt::format("{} ({})", key.name, tool_name(key.tool));
  if (const auto* row = key.as<Renamed>())
    return fmt::format("{} is called {} in qft{}\n", head, row->key,
                       row->words.size() == 0 ? "" : fmt::format("; its values in qft: {}", words_of(row->words)));
  if (const auto* row = key.as<Converted>())
    return fmt::format("{} sets keys depending on its value: {}\n  qft refuses any other value: {}\n", head, cases_of(*row),
                       row->otherwise);
  if (const auto* row = key.as<Either>()) return fmt::format("{} has two meanings: {}\n", head, row->meanings);
  if (const auto* row = key.as<NoEffect>()) return fmt::format("{} has no effect in qft: {}\n", head, row->reason);
  if (const auto* row = key.as<Refused>())
    return fmt::format("qft refuses {}: {}\n{}", head, row->reason,
                       row->harmless.size() == 0
                           ? ""
                           : fmt::format("  accepted values, because they change nothing: {}\n", fmt::join(row->harmless, "|")));
  if (key.is<Section>()) return fmt::format("{} is a section; qft reads its keys (docs/coming_from.md)\n", head);
  if (key.is<Ranks>()) return fmt::format("{} must equal the number of ranks\n", head);
  return fmt::format("{} works together with other keys of its tool\n", head);
}

}  // namespace qft::dialects
