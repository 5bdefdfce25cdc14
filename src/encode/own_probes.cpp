// Finds out how a Jinja template expects the parts of a conversation by rendering short ones. Its source alone does not tell: a
// name there may be prose or a comment.
#include "qft/core/error.h"

#include <utility>

#include "own_renderer.h"
#include "thought.h"

namespace qft::encode {
namespace {

constexpr std::string_view kThought = "qft thinks", kSystem = "qft says", kCall = "qft_call", kKey = "qft_key";

bool shows(const std::string& text, std::string_view part) {
  return text.find(part) != text.npos;
}

Json call_with(Json arguments) {
  return {
      {"role", "assistant"},
      {"content", ""},
      {"tool_calls",
       Json::array(
           {{{"type", "function"}, {"id", "123456789"}, {"function", {{"name", kCall}, {"arguments", std::move(arguments)}}}}})}};
}

}  // namespace

// Renders these messages; empty if the template refuses them.
std::string OwnRenderer::probe(const Form& form, Json messages, Json variables) const {
  variables["messages"] = std::move(messages);
  variables["tools"] = nullptr;
  if (!variables.contains("documents")) variables["documents"] = nullptr;
  variables["add_generation_prompt"] = false;
  try {
    return form.chat.render(variables, render_).text;
  } catch (const Error&) {
    return {};
  }
}

// Renders a question and an answer.
std::string OwnRenderer::probe(const Form& form, const Json& answer, bool thinks) const {
  Json variables = fixed_;
  if (thinks) variables["enable_thinking"] = variables["thinking"] = true;
  return probe(form, Json::array({{{"role", "user"}, {"content", "qft asks"}}, answer}), std::move(variables));
}

void OwnRenderer::probe_form(Form& form) const {
  const Json answer = {{"role", "assistant"}, {"content", kProbeAnswer}}, question = {{"role", "user"}, {"content", "qft asks"}};
  const std::string rendered = probe(form, Json::array({{{"role", "system"}, {"content", kSystem}}, question, answer}), fixed_);
  form.hides_system = shows(rendered, kProbeAnswer) && !shows(rendered, kSystem);
  probe_calls(form);
  probe_thoughts(form);
}

// Some templates concatenate arguments with a text, or print them: no model was taught Python's form of an object.
void OwnRenderer::probe_calls(Form& form) const {
  const Json arguments = {{std::string(kKey), 1}};
  const std::string as_object = probe(form, call_with(arguments)), in_python = fmt::format("'{}': 1", kKey);
  if (shows(as_object, kCall) && !shows(as_object, in_python)) return;
  const std::string as_text = probe(form, call_with(dump_python_json(arguments)));
  form.arguments_as_text = shows(as_text, kCall) && !shows(as_text, in_python);
}

bool OwnRenderer::writes_calls_as(const ToolFormat& format) const {
  const Form& form = tool_use_ ? *tool_use_ : form_;
  const Json arguments = {{std::string(kKey), 1}};
  const std::string answer = probe(form, call_with(form.arguments_of(arguments)));
  return shows(answer, stripped(format.write_calls({{std::string(kCall), arguments}})));
}

void OwnRenderer::probe_thoughts(Form& form) const {
  for (const bool thinks : {false, true})
    for (const std::string_view key : kThoughtKeys) {
      Json answer = {{"role", "assistant"}, {"content", kProbeAnswer}};
      answer[std::string(key)] = kThought;
      if (form.thought_key.empty() && shows(probe(form, answer, thinks), kThought)) form.thought_key = key;
    }
  const std::string text = fmt::format("{}\n{}\n{}\n\n{}", kThinkOpen, kThought, kThinkClose, kProbeAnswer);
  form.thought_in_text =
      shows(form.source, kThinkClose) && shows(probe(form, {{"role", "assistant"}, {"content", text}}), kThought);
}

}  // namespace qft::encode
