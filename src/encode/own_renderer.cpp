#include "own_renderer.h"

#include "qft/core/error.h"
#include "qft/core/hash.h"
#include "qft/io/companion_files.h"
#include "qft/io/file.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "shown_parts.h"
#include "thought.h"

namespace qft::encode {
namespace {

namespace fs = std::filesystem;

// transformers' names of special tokens, which templates see as variables
constexpr const char* kSpecialTokens[] = {"bos_token", "eos_token", "unk_token",  "sep_token",
                                          "pad_token", "cls_token", "mask_token", "additional_special_tokens"};

Json read_json_object(const fs::path& file) {
  if (!fs::is_regular_file(file)) return Json::object();
  Json json = parse_python_json(io::read_text_file(file), file.string());
  return json.is_object() ? json : Json::object();
}

/// Returns a token's text; the token is a text or an object with its content.
Json token_text(const Json& token) {
  if (token.is_object() && token.contains("content")) return token["content"];
  if (!token.is_array()) return token.is_string() ? token : Json();
  Json list = Json::array();
  for (const Json& each : token) list.push_back(token_text(each));
  return list;
}

Json special_tokens(const fs::path& dir) {
  Json variables = Json::object();
  const Json config = read_json_object(dir / io::kTokenizerConfigFile), map = read_json_object(dir / io::kSpecialTokensFile);
  for (const char* name : kSpecialTokens)
    for (const Json* from : {&config, &map})
      if (!variables.contains(name) && from->contains(name))
        if (Json text = token_text((*from)[name]); !text.is_null()) variables[name] = std::move(text);
  return variables;
}

jinja::Template parse_jinja(const std::string& text, const std::string& origin) try {
  return jinja::Template::parse(text, origin);
} catch (const Error& error) {
  fail_config("chat template: {}; name another one with chat_template, or one of qft's templates with template", error.what());
}

// Puts an answer's thought into its text if the template has no key for thoughts.
std::string text_with_thought(std::string_view text, std::string_view thought, bool is_read) {
  if (!is_read)
    fail(
        "an answer has a thought (reasoning_content, reasoning or thinking), but the model's chat template does not support "
        "thoughts; write it into the content, or remove it");
  return fmt::format("{}\n{}\n{}\n\n{}", kThinkOpen, stripped(thought, "\n"), kThinkClose, text);
}

// Returns a call's result in OpenAI's form.
Json result_of(const Message& result) {
  Json object = {{"role", "tool"}, {"content", result.text}};
  if (!result.name.empty()) object["name"] = result.name;
  if (!result.call_id.empty()) object["tool_call_id"] = result.call_id;
  return object;
}

}  // namespace

OwnRenderer::OwnRenderer(const ModelChatTemplate& own, const fs::path& tokenizer_dir,
                         std::shared_ptr<const tokenizer::Tokenizer> tokenizer, const TemplateOptions& options)
    : tokenizer_(std::move(tokenizer)),
      options_(options),
      description_(fmt::format("{}\n{}\n", own.text, own.tool_use)),
      fixed_(special_tokens(tokenizer_dir)),
      form_{parse_jinja(own.text, own.origin), own.text} {
  description_ += dump_python_json(fixed_);
  for (const auto& [name, value] : options_.variables.items()) fixed_[name] = value;
  if (options_.fixed_date) {
    std::tm date{};
    date.tm_year = kTemplateDate[0] - 1900;
    date.tm_mon = kTemplateDate[1] - 1;
    date.tm_mday = kTemplateDate[2];
    date.tm_hour = 12;
    std::mktime(&date);  // sets the day of the week and of the year
    render_.now = date;
  }
  probe_form(form_);
  if (!own.tool_use.empty()) {
    tool_use_ = Form{parse_jinja(own.tool_use, own.origin), own.tool_use};
    probe_form(*tool_use_);
  }
  const std::string answered = probe(form_, {{"role", "assistant"}, {"content", kProbeAnswer}});
  if (const std::size_t at = answered.rfind(kProbeAnswer); at != answered.npos)
    ending_ = answered.substr(at + kProbeAnswer.size());
}

bool OwnRenderer::reads(std::string_view variable) const {
  const auto has = [&](const Form& form) {
    return std::ranges::find(form.chat.variables(), variable) != form.chat.variables().end();
  };
  return has(form_) || (tool_use_ && has(*tool_use_));
}

std::vector<std::string> OwnRenderer::unread(const Json& variables) const {
  std::vector<std::string> names;
  for (const auto& [name, value] : variables.items())
    if (!reads(name)) names.push_back(name);
  return names;
}

// Returns an answer in OpenAI's form. The thought goes under the key that the template reads, or into the text.
Json OwnRenderer::answer_of(const Message& message, const Dialogue& dialogue) {
  const Form& form = *dialogue.form;
  std::string text = message.text;
  Json object = {{"role", "assistant"}, {"content", ""}};
  const auto split = split_thought(message.text, kThinkOpen, kThinkClose);
  const bool has_key = message.thought && !stripped(*message.thought).empty();
  if (split && (dialogue.drops_thoughts || has_key)) text = std::string(split->text);
  if (has_key && !dialogue.drops_thoughts) {
    if (split && !split->thought.empty() && stripped(split->thought) != stripped(*message.thought))
      fail("an answer has one thought in a separate key and another one in its text; keep one of the two");
    if (form.thought_key.empty())
      text = text_with_thought(text, *message.thought, form.thought_in_text);
    else
      object[std::string(form.thought_key)] = *message.thought;
  }
  object["content"] = std::move(text);
  for (const Call& call : message.calls) {
    Json function = {{"name", call.name}, {"arguments", form.arguments_of(call.arguments)}};
    Json whole = {{"type", "function"}, {"function", std::move(function)}};
    if (!call.id.empty()) whole["id"] = call.id;
    object["tool_calls"].push_back(std::move(whole));
  }
  return object;
}

OwnRenderer::Dialogue OwnRenderer::dialogue_of(const Conversation& conversation, const std::vector<Message>& messages) const {
  Dialogue dialogue;
  dialogue.form = !conversation.tools.empty() && tool_use_ ? &*tool_use_ : &form_;
  dialogue.messages = messages;
  set_variables(conversation, dialogue);
  dialogue.system_text = conversation.system;
  if (conversation.system.empty() && !conversation.has_system) dialogue.system_text = options_.default_system.value_or("");
  dialogue.has_system = conversation.has_system || !dialogue.system_text.empty();
  if (!dialogue.system_text.empty() && dialogue.form->hides_system)
    fail("the model's chat template does not show system messages; remove the message, or name one of qft's templates");
  if (dialogue.has_system) dialogue.rendered.push_back({{"role", "system"}, {"content", dialogue.system_text}});
  for (const Message& message : messages) {
    if (is_answer(message.role)) {
      dialogue.rendered.push_back(answer_of(message, dialogue));
    } else if (message.role == Role::user) {
      dialogue.rendered.push_back({{"role", "user"}, {"content", message.text}});
    } else {
      dialogue.rendered.push_back(result_of(message));
      for (const Message& result : message.more_results) dialogue.rendered.push_back(result_of(result));
    }
  }
  return dialogue;
}

void OwnRenderer::set_variables(const Conversation& conversation, Dialogue& dialogue) const {
  dialogue.variables = fixed_;
  if (!conversation.documents.empty() && !reads("documents"))
    fail("the record has documents, which the model's chat template does not show; remove the column from dataset_info.json");
  for (const auto& [name, value] : conversation.template_kwargs.items())
    if (!reads(name) || name == "messages" || name == "tools" || name == "add_generation_prompt")
      fail("the record's chat_template_kwargs has '{}', which the model's chat template does not read; remove it", name);
  for (const auto& [name, value] : conversation.template_kwargs.items()) dialogue.variables[name] = value;
  const auto thinking = dialogue.variables.find("enable_thinking");
  dialogue.drops_thoughts =
      thinking == dialogue.variables.end() ? options_.enable_thinking == std::optional<bool>(false) : *thinking == false;
  const bool has_tools = !conversation.tools.empty();
  if (has_tools && !reads("tools"))
    fail(
        "the record has tools, which the model's chat template does not show; remove the column, or name one of qft's templates");
  Json tools = has_tools ? Json::array() : Json();
  for (const Json& tool : conversation.tools)
    tools.push_back(tool.contains("function") || tool.contains("type") ? tool : Json{{"type", "function"}, {"function", tool}});
  dialogue.variables["tools"] = std::move(tools);
  if (!conversation.documents.empty() || !dialogue.variables.contains("documents"))
    dialogue.variables["documents"] = conversation.documents.empty() ? Json() : conversation.documents;
}

// Renders the first `messages` of the dialogue; `generation_prompt`: with the generation prompt.
jinja::Rendering OwnRenderer::render(Dialogue& dialogue, std::size_t messages, bool generation_prompt) const {
  std::size_t count = dialogue.has_system ? 1 : 0;
  for (std::size_t i = 0; i < messages; ++i) count += 1 + dialogue.messages[i].more_results.size();
  Json& variables = dialogue.variables;
  variables["messages"] = Json::array();
  for (std::size_t i = 0; i < count; ++i) variables["messages"].push_back(dialogue.rendered[i]);
  variables["add_generation_prompt"] = generation_prompt;
  try {
    return dialogue.form->chat.render(variables, render_);
  } catch (const jinja::TemplateRefusal& refusal) {
    fail("the model's chat template refuses the conversation: {}", refusal.message());
  }
}

std::vector<std::int32_t> OwnRenderer::prompt(const Conversation& conversation) const {
  Dialogue dialogue = dialogue_of(conversation, conversation.prompt);
  const std::string text = render(dialogue, dialogue.messages.size(), true).text;
  require_prompt_shown(text, dialogue.system_text, dialogue.variables["tools"], dialogue.messages, false);
  return tokenizer_->encode(text);
}

std::string OwnRenderer::hash() const {
  const int thinking = options_.enable_thinking ? *options_.enable_thinking : 2;
  return hash_hex(fmt::format("own {} {} {} {}", description_, dump_python_json(options_.variables),
                              options_.default_system.value_or(""), thinking));
}

}  // namespace qft::encode
