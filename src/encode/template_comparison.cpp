#include "qft/encode/template_comparison.h"

#include "qft/config/run_config.h"
#include "qft/core/error.h"
#include "qft/core/file_ending.h"
#include "qft/encode/record_converter.h"
#include "qft/encode/record_source.h"
#include "qft/jinja/template.h"

#include <algorithm>

#include "shown_parts.h"

namespace qft::encode {
namespace {

// Returns the text that a chat shows for a conversation with its answer.
std::string text_of_chat(const ChatTemplate& chat, const Conversation& conversation) {
  std::string text;
  const std::vector<TrainingSample> samples = chat.training_samples(conversation);
  for (const Exchange& turn : samples.back()) text += chat.tokenizer().decode(turn.source) + chat.tokenizer().decode(turn.target);
  return text;
}

std::string line_from(std::string_view text, std::size_t at) {
  const Excerpt part = excerpt_around(text, at, 40, 60);
  return fmt::format("{}{}{}", part.cut_before ? "... " : "", part.quoted, part.cut_after ? " ..." : "");
}

constexpr std::string_view kTools =
    R"([{"type": "function", "function": {"name": "weather", "description": "Weather of a city", "parameters": {"type": "object",
    "properties": {"city": {"type": "string", "description": "its name"}}, "required": ["city"]}}}])";

// Each ends with an answer, which its prompt omits.
constexpr std::string_view kConversations[] = {
    R"([{"role": "user", "content": "Hello?"}, {"role": "assistant", "content": "Hi."}])",
    R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello?"}, {"role": "assistant", "content": "Hi."}])",
    R"([{"role": "user", "content": "One?"}, {"role": "assistant", "content": "1"}, {"role": "user", "content": "Two?"},
    {"role": "assistant", "content": "2"}])",
    R"([{"role": "user", "content": "One?"}, {"role": "assistant", "reasoning_content": "T0", "content": "1"},
    {"role": "user", "content": "Two?"}, {"role": "assistant", "reasoning_content": "T1", "content": "2"}])",
    R"([{"role": "user", "content": "Oslo?"}, {"role": "assistant", "content": "", "tool_calls": [{"type": "function",
    "function": {"name": "weather", "arguments": {"city": "Oslo"}}}]}, {"role": "tool", "name": "weather", "content": "rain"},
    {"role": "assistant", "content": "Rain."}])"};

/// Returns nothing if the template refuses the variables.
std::optional<std::string> rendered(const jinja::Template& chat, const Json& variables) {
  try {
    return chat.render(variables).text;
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

std::optional<TemplateDifference> first_difference(const ChatTemplate& first, const ChatTemplate& second,
                                                   const Conversation& conversation) {
  if (conversation.responses.empty() || conversation.prompt.empty()) return std::nullopt;
  std::string a, b;
  try {
    a = text_of_chat(first, conversation);
  } catch (const Error&) {
    return std::nullopt;  // reported when the record is encoded
  }
  try {
    b = text_of_chat(second, conversation);
  } catch (const Error& error) {
    return TemplateDifference{line_from(a, 0), error.what()};
  }
  if (a == b) return std::nullopt;
  const std::size_t at = first_mismatch(a, b);
  return TemplateDifference{line_from(a, at), line_from(b, at)};
}

namespace {

/// Returns lines about the first record that the templates show differently, among a dataset's first records.
std::vector<std::string> first_difference_in(const DatasetSpec& spec, const ChatTemplate& named, const ChatTemplate& own) {
  constexpr int kRecords = 8;
  std::vector<std::string> lines;
  RecordConverter converter(spec, false);
  for_first_records(spec.files.front(), kRecords, [&](const RecordText& record) {
    if (!lines.empty()) return;
    try {
      auto converted = converter.convert(record);
      const auto* conversation = std::get_if<Conversation>(&converted);
      if (conversation == nullptr) return;
      const auto difference = first_difference(named, own, *conversation);
      if (!difference) return;
      lines = {
          fmt::format("{}: template '{}' is used, as requested; it differs from the model's own chat template ({}), which is "
                      "used if the key template is removed:",
                      record.where(), named.spec().name, own.spec().origin),
          fmt::format("  {}: {}", named.spec().name, difference->first), fmt::format("  own: {}", difference->second)};
    } catch (const Error&) {
      return;  // reported when the record is encoded
    }
  });
  return lines;
}

}  // namespace

std::vector<std::string> compare_with_own(const config::RunConfig& config, const ChatTemplate& named,
                                          const std::vector<DatasetSpec>& specs) try {
  if (named.is_jinja() || specs.empty()) return {};
  const auto own = ChatTemplate::own_for_comparison(config, named.shared_tokenizer());
  if (!own) return {};
  for (const DatasetSpec& spec : specs) {
    if (!spec.template_name.empty() || file_ending(spec.files.front()) == ".txt") continue;
    if (std::vector<std::string> lines = first_difference_in(spec, named, *own); !lines.empty()) return lines;
  }
  return {};
} catch (const Error& error) {
  return {fmt::format("the model's own chat template is not compared: {}", error.what())};
}

std::vector<std::string> compare_with_own(const config::RunConfig& config) {
  if (config.data.dataset.empty() || config.stage().has_documents()) return {};
  const ChatTemplate named = ChatTemplate::for_packing(config);
  if (named.is_jinja()) return {};
  return compare_with_own(
      config, named,
      load_dataset_info(config.folder_of(config.data.dataset_dir), config.data.dataset, config.folders, config.finetuning.stage));
}

std::vector<Json> template_probes() {
  std::vector<Json> probes;
  for (const std::string_view text : kConversations)
    for (const bool tools : {false, true}) {
      Json whole = Json::object();
      whole["messages"] = parse_python_json(text, "a probe");
      whole["tools"] = tools ? parse_python_json(kTools, "a probe") : Json();
      whole["add_generation_prompt"] = false;
      Json prompt = whole;
      prompt["messages"].erase(prompt["messages"].size() - 1);
      prompt["add_generation_prompt"] = true;
      probes.push_back(std::move(whole));
      probes.push_back(std::move(prompt));
    }
  return probes;
}

bool render_alike(const std::string& a, const std::string& b, const Json& tokens) try {
  if (a == b) return true;
  const auto first = jinja::Template::parse(a, "a chat template"), second = jinja::Template::parse(b, "a chat template");
  return std::ranges::all_of(template_probes(), [&](Json& probe) {
    probe.update(tokens);
    return rendered(first, probe) == rendered(second, probe);
  });
} catch (const Error&) {
  return false;  // one of the two cannot be parsed
}

}  // namespace qft::encode
