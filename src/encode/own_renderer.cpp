#include "own_renderer.h"

#include "qft/core/error.h"
#include "qft/core/hash.h"
#include "qft/io/file.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "shown_parts.h"
#include "thought.h"

namespace qft::encode {
namespace {

namespace fs = std::filesystem;

// transformers' names of special tokens; templates see them as variables.
constexpr const char* kSpecialTokens[] = {"bos_token", "eos_token", "unk_token",  "sep_token",
                                          "pad_token", "cls_token", "mask_token", "additional_special_tokens"};

Json read_json_object(const fs::path& file) {
  if (!fs::is_regular_file(file)) return Json::object();
  Json json = parse_python_json(io::read_text_file(file), file.string());
  return json.is_object() ? json : Json::object();
}

/// A token is a text, or an object with its content.
Json token_text(const Json& token) {
  if (token.is_object() && token.contains("content")) return token["content"];
  if (!token.is_array()) return token.is_string() ? token : Json();
  Json list = Json::array();
  for (const Json& each : token) list.push_back(token_text(each));
  return list;
}

Json special_tokens(const fs::path& dir) {
  Json variables = Json::object();
  const Json config = read_json_object(dir / "tokenizer_config.json"), map = read_json_object(dir / "special_tokens_map.json");
  for (const char* name : kSpecialTokens)
    for (const Json* from : {&config, &map})
      if (!variables.contains(name) && from->contains(name))
        if (Json text = token_text((*from)[name]); !text.is_null()) variables[name] = std::move(text);
  return variables;
}

jinja::Template parse_jinja(const std::string& text, const std::string& origin) try {
  return jinja::Template::parse(text, origin);
} catch (const Error& error) {
  fail_config("chat template: {}; name another with chat_template, or a template of qft's with template", error.what());
}

}  // namespace

OwnRenderer::OwnRenderer(const ModelChatTemplate& own, const fs::path& tokenizer_dir,
                         std::shared_ptr<const tokenizer::Tokenizer> tokenizer, const TemplateOptions& options)
    : tokenizer_(std::move(tokenizer)),
      options_(options),
      source_(own.text + own.tool_use),
      template_(parse_jinja(own.text, own.origin)),
      fixed_(special_tokens(tokenizer_dir)) {
  if (!own.tool_use.empty()) tool_use_ = parse_jinja(own.tool_use, own.origin);
  description_ = fmt::format("{}\n{}\n{}", own.text, own.tool_use, dump_python_json(fixed_));
  for (const auto& [name, value] : options_.variables.items()) fixed_[name] = value;
  if (options_.fixed_date) {
    std::tm date{};
    date.tm_year = kTemplateDate[0] - 1900;
    date.tm_mon = kTemplateDate[1] - 1;
    date.tm_mday = kTemplateDate[2];
    date.tm_hour = 12;
    std::mktime(&date);  // the day of the week and of the year
    render_.now = date;
  }
  find_ending();
}

// A short conversation shows how an answer ends, and whether calls take their arguments as objects.
void OwnRenderer::find_ending() {
  const std::string word = "qft answers";
  Conversation probe;
  probe.prompt.push_back({Role::user, "qft asks"});
  try {
    Dialogue dialogue = dialogue_of(probe, with_answer(probe, {Role::assistant, word}));
    const std::string text = render(dialogue, 2, false).text;
    if (const std::size_t at = text.rfind(word); at != text.npos) ending_ = text.substr(at + word.size());
  } catch (const Error&) {
    return;  // the template wants more than a question and an answer
  }
  Message call{Role::assistant, ""};
  call.calls.push_back({.name = "qft_call", .arguments = Json::object({{"a", 1}}), .id = "123456789"});
  const auto is_rendered = [&] {
    try {
      Dialogue dialogue = dialogue_of(probe, with_answer(probe, call));
      return render(dialogue, 2, false).text.find("qft_call") != std::string::npos;
    } catch (const Error&) {
      return false;
    }
  };
  if (is_rendered()) return;
  arguments_as_text_ = true;
  arguments_as_text_ = is_rendered();
}

bool OwnRenderer::reads(std::string_view variable) const {
  const auto has = [&](const jinja::Template& t) { return std::ranges::find(t.variables(), variable) != t.variables().end(); };
  return has(template_) || (tool_use_ && has(*tool_use_));
}

std::vector<std::string> OwnRenderer::unread(const Json& variables) const {
  std::vector<std::string> names;
  for (const auto& [name, value] : variables.items())
    if (!reads(name)) names.push_back(name);
  return names;
}

// An answer in OpenAI's form. A thought goes by the key that the template reads, or into the text that it takes apart.
Json OwnRenderer::answer_of(const Message& message) const {
  const bool drops = options_.enable_thinking == std::optional<bool>(false);
  std::string text = message.text;
  Json object = {{"role", "assistant"}, {"content", ""}};
  if (drops)
    if (const auto split = split_thought(text, kThinkOpen, kThinkClose)) text = std::string(split->text);
  if (message.thought && !drops && !stripped(*message.thought).empty()) {
    bool has_key = false;
    for (const std::string_view key : kThoughtKeys)
      if (source_.find(key) != source_.npos) {
        object[std::string(key)] = *message.thought;
        has_key = true;
      }
    if (const auto split = split_thought(text, kThinkOpen, kThinkClose)) {
      if (!split->thought.empty() && stripped(split->thought) != stripped(*message.thought))
        fail("an answer has one thought in a key of its own and another one in its text: keep one of the two");
      text = std::string(split->text);
    }
    if (!has_key && source_.find(kThinkClose) == source_.npos)
      fail(
          "an answer has a thought (reasoning_content, reasoning or thinking), but the model's chat template does not have "
          "thoughts: write it into the content, or take it out");
    if (!has_key) text = fmt::format("{}\n{}\n{}\n\n{}", kThinkOpen, stripped(*message.thought, "\n"), kThinkClose, text);
  }
  object["content"] = std::move(text);
  for (const Call& call : message.calls) {
    Json function = {{"name", call.name},
                     {"arguments", arguments_as_text_ ? Json(dump_python_json(call.arguments)) : call.arguments}};
    Json whole = {{"type", "function"}, {"function", std::move(function)}};
    if (!call.id.empty()) whole["id"] = call.id;
    object["tool_calls"].push_back(std::move(whole));
  }
  return object;
}

OwnRenderer::Dialogue OwnRenderer::dialogue_of(const Conversation& conversation, const std::vector<Message>& messages) const {
  Dialogue dialogue;
  std::string system = conversation.system;
  if (system.empty()) system = options_.default_system.value_or("");
  if (!system.empty()) dialogue.rendered.push_back({{"role", "system"}, {"content", system}});
  dialogue.system_text = std::move(system);
  for (const Message& message : messages) {
    if (is_answer(message.role)) {
      dialogue.rendered.push_back(answer_of(message));
    } else if (message.role == Role::user) {
      dialogue.rendered.push_back({{"role", "user"}, {"content", message.text}});
    } else {
      const auto add = [&](const Message& result) {
        Json object = {{"role", "tool"}, {"content", result.text}};
        if (!result.name.empty()) object["name"] = result.name;
        if (!result.call_id.empty()) object["tool_call_id"] = result.call_id;
        dialogue.rendered.push_back(std::move(object));
      };
      add(message);
      for (const Message& result : message.more_results) add(result);
    }
  }
  dialogue.messages = messages;
  dialogue.variables = fixed_;
  if (!conversation.documents.empty() && !reads("documents"))
    fail("the record has documents, which the model's chat template does not show: take the column out of dataset_info.json");
  for (const auto& [name, value] : conversation.template_kwargs.items())
    if (!reads(name) || name == "messages" || name == "tools" || name == "add_generation_prompt")
      fail("chat_template_kwargs of the record has '{}', which the model's chat template does not read: take it out", name);
  for (const auto& [name, value] : conversation.template_kwargs.items()) dialogue.variables[name] = value;
  const bool has_tools = !conversation.tools.empty();
  if (has_tools && !reads("tools"))
    fail("the record has tools, which the model's chat template does not show: take the column out, or name a template of qft's");
  Json tools = has_tools ? Json::array() : Json();
  for (const Json& tool : conversation.tools)
    tools.push_back(tool.contains("function") || tool.contains("type") ? tool : Json{{"type", "function"}, {"function", tool}});
  dialogue.variables["tools"] = std::move(tools);
  if (!conversation.documents.empty() || !dialogue.variables.contains("documents"))
    dialogue.variables["documents"] = conversation.documents.empty() ? Json() : conversation.documents;
  dialogue.with = has_tools && tool_use_ ? &*tool_use_ : &template_;
  return dialogue;
}

// The first `messages` of the dialogue; `asks`: up to where the model is to speak.
jinja::Rendering OwnRenderer::render(Dialogue& dialogue, std::size_t messages, bool asks) const {
  std::size_t count = dialogue.system_text.empty() ? 0 : 1;
  for (std::size_t i = 0; i < messages; ++i) count += 1 + dialogue.messages[i].more_results.size();
  Json& variables = dialogue.variables;
  variables["messages"] = Json::array();
  for (std::size_t i = 0; i < count; ++i) variables["messages"].push_back(dialogue.rendered[i]);
  variables["add_generation_prompt"] = asks;
  try {
    return dialogue.with->render(variables, render_);
  } catch (const jinja::TemplateRefusal& refusal) {
    fail("the model's chat template refuses the conversation: {}", refusal.message());
  }
}

std::vector<std::int32_t> OwnRenderer::prompt(const Conversation& conversation) const {
  Dialogue dialogue = dialogue_of(conversation, conversation.prompt);
  const std::string text = render(dialogue, dialogue.messages.size(), true).text;
  require_prompt_shown(text, dialogue.system_text, dialogue.variables["tools"], dialogue.messages);
  return tokenizer_->encode(text);
}

std::string OwnRenderer::hash() const {
  const int thinking = options_.enable_thinking ? *options_.enable_thinking : 2;
  return hash_hex(fmt::format("own {} {} {} {}", description_, dump_python_json(options_.variables),
                              options_.default_system.value_or(""), thinking));
}

}  // namespace qft::encode
