#include "qft/encode/trained_template.h"

#include "qft/core/error.h"
#include "qft/jinja/template.h"

#include <algorithm>
#include <optional>

namespace qft::encode {
namespace {

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
