#include "own_renderer.h"

#include "qft/core/error.h"
#include "qft/core/hash.h"
#include "qft/io/file.h"

#include <algorithm>
#include <ctime>
#include <functional>
#include <iterator>
#include <utility>

#include "excerpt.h"
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

std::string excerpt(std::string_view text, std::size_t at) {
  return excerpt_around(text, at, 30, 50).quoted;
}

jinja::Template parse_jinja(const std::string& text, const std::string& origin) try {
  return jinja::Template::parse(text, origin);
} catch (const Error& error) {
  fail_config("chat template: {}; name another with chat_template, or a template of qft's with template", error.what());
}

}  // namespace

struct OwnRenderer::Dialogue {
  std::vector<Message> messages;
  std::size_t system = 0;  // messages of `rendered` before the first of these
  Json rendered = Json::array();
  Json variables = Json::object();  // render() sets messages and add_generation_prompt
  const jinja::Template* with = nullptr;
};

struct OwnRenderer::Answer {
  std::size_t number = 0;  // among the answers
  std::size_t begin = 0;   // byte in a rendering that has the answer's as its beginning
  jinja::Rendering shown;  // the one that ends with it
  const std::string& text() const { return shown.text; }
};

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
    if (const auto split = split_thought(text, kThinkOpen, kThinkClose); split && !split->thought.empty())
      fail("an answer has one thought in a key of its own and another one in its text: keep one of the two");
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
  if (!system.empty()) {
    dialogue.rendered.push_back({{"role", "system"}, {"content", system}});
    dialogue.system = 1;
  }
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
  std::size_t count = dialogue.system;
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

OwnRenderer::Answer OwnRenderer::find_answer(Dialogue& dialogue, std::size_t number) const {
  const std::size_t at = 2 * number + 1;
  const std::string asked = render(dialogue, at, true).text;
  Answer answer{number, asked.size(), render(dialogue, at + 1, false)};
  if (answer.text().starts_with(asked)) return answer;
  const std::size_t differs = differ_at(asked, answer.text());
  if (dialogue.with->has_generation()) {  // its marks say where the answer begins
    answer.begin = differs;
    return answer;
  }
  fail(
      "the model's chat template shows the conversation before answer {} otherwise once the answer is there: {} before, {} "
      "after; "
      "such an answer cannot be told from its prompt: change the record, or name a template of qft's",
      number + 1, excerpt(asked, differs), excerpt(answer.text(), differs));
}

std::vector<OwnRenderer::Answer> OwnRenderer::find_answers(Dialogue& dialogue, const std::vector<bool>& learned) const {
  std::vector<Answer> answers;
  for (std::size_t i = 0; i < learned.size(); ++i)
    if (learned[i]) answers.push_back(find_answer(dialogue, i));
  return answers;
}

// What the template does not show would be lost without a word.
void OwnRenderer::require_whole(std::string_view learned, const Message& answer, std::size_t number) const {
  const bool drops = options_.enable_thinking == std::optional<bool>(false);
  const auto require_part = [&](std::string_view part, std::string_view what) {
    if (learned.find(stripped(part)) == learned.npos)
      fail("the model's chat template does not show the {} of answer {} as it is: {} is not in {}", what, number + 1,
           excerpt(stripped(part), 0), excerpt(learned, 0));
  };
  if (answer.thought && !drops) require_part(*answer.thought, "thought");
  for (const Call& call : answer.calls) require_part(call.name, "call");
  const auto split = split_thought(answer.text, kThinkOpen, kThinkClose);
  const std::string_view text = split ? split->text : std::string_view(answer.text);
  if (split && !drops && !split->thought.empty()) require_part(split->thought, "thought");
  if (!answer.calls.empty() || text.find(kThinkClose) != text.npos || text.find(kThinkOpen) != text.npos)
    require_part(text, "text");
}

// The parts of an answer in text [begin, end). Its ending counts 1, or 0 where the text before it ends with 0 and more follows.
std::vector<WeightedText> OwnRenderer::parts_of(std::string_view text, std::span<const jinja::ByteRange> said,
                                                const Message& answer, std::string_view question, bool is_last,
                                                const TurnWeighing& weighing) const {
  std::vector<WeightedText> parts;
  std::size_t at = said.front().begin;
  for (const jinja::ByteRange& range : said) {
    if (range.begin > at) parts.push_back({text.substr(at, range.begin - at), 0.0F});  // between two marked pieces
    std::string_view piece = text.substr(range.begin, range.end - range.begin);
    const bool ends = !ending_.empty() && piece.ends_with(ending_);
    if (ends) piece.remove_suffix(ending_.size());
    const std::vector<WeightedText> inside = weighed(piece, answer, question, weighing);
    parts.insert(parts.end(), inside.begin(), inside.end());
    const bool counts = weighing.prompts || is_last || parts.empty() || parts.back().weight > 0;
    if (ends) parts.push_back({ending_, counts ? 1.0F : 0.0F});
    at = range.end;
  }
  std::erase_if(parts, [](const WeightedText& part) { return part.text.empty(); });
  return parts;
}

// The pieces of a rendering that the model says in an answer: as the template marks them, else all of it.
std::vector<jinja::ByteRange> OwnRenderer::said_in(const jinja::Rendering& whole, const Answer& answer, bool marked) {
  const std::size_t end = answer.text().size();
  if (!marked) return {{answer.begin, end}};
  std::vector<jinja::ByteRange> said;
  for (const jinja::ByteRange& range : whole.generated)
    if (range.end > answer.begin && range.begin < end && range.begin < range.end)
      said.push_back({std::max(range.begin, answer.begin), std::min(range.end, end)});
  if (said.empty())
    fail("the chat template marks nothing of answer {} with {{% generation %}}: there is nothing to learn", answer.number + 1);
  return said;
}

// The rendering of the last answer, cut into what is given and what the model says.
TrainingSample OwnRenderer::cut(const std::vector<Answer>& answers, const Dialogue& dialogue,
                                const TurnWeighing& weighing) const {
  const jinja::Rendering& whole = answers.back().shown;
  const std::string_view text = whole.text;
  TrainingSample turns;
  std::size_t at = 0;
  for (const Answer& found : answers) {
    const std::vector<jinja::ByteRange> said = said_in(whole, found, dialogue.with->has_generation());
    if (said.front().begin < at)
      fail("the chat template shows answer {} before the end of the answer before it: its samples cannot be told apart",
           found.number + 1);
    Turn& turn = turns.emplace_back();
    turn.answer = found.number;
    const Message& answer = dialogue.messages[2 * turn.answer + 1];
    const Message& before = dialogue.messages[2 * turn.answer];
    const std::string_view source = text.substr(at, said.front().begin - at);
    const std::string_view target = text.substr(said.front().begin, said.back().end - said.front().begin);
    if (weighing.prompts && weighing.schemes != nullptr)
      append_parts(*tokenizer_, weighing.schemes->split(source, {}), turn.source, turn.source_weights);
    else
      tokenizer_->encode(source, turn.source);
    if (target.empty() && !answer.is_empty())
      fail("the model's chat template shows nothing of answer {}: is it a template for chats?", turn.answer + 1);
    require_whole(target, answer, turn.answer);
    const std::string_view question = before.role == Role::user ? std::string_view(before.text) : std::string_view();
    if (weighing.schemes == nullptr && !answer.weight && said.size() == 1)
      tokenizer_->encode(target, turn.target);
    else
      append_parts(*tokenizer_, parts_of(text, said, answer, question, found.number == answers.back().number, weighing),
                   turn.target, turn.target_weights);
    at = said.back().end;
  }
  return turns;
}

std::vector<TrainingSample> OwnRenderer::training_samples(const Conversation& conversation, const AnswerChoice& choice,
                                                          const TurnWeighing& weighing) const {
  Dialogue dialogue = dialogue_of(conversation, with_answer(conversation, conversation.responses.front()));
  std::vector<bool> learned = choice.learned;
  if (learned.empty()) learned.assign(dialogue.messages.size() / 2, true);
  if (std::ranges::none_of(learned, std::identity())) learned.back() = true;  // a sample without labels, as of any other template
  std::vector<Answer> rest = find_answers(dialogue, learned);
  std::vector<TrainingSample> samples;
  // The rendering of the last answer left holds all those that it shows as they were said; the others make samples of their own.
  while (!rest.empty()) {
    std::vector<Answer> shown = {std::move(rest.back())}, others;
    rest.pop_back();
    const std::string& whole = shown.front().text();
    std::vector<Answer> before;
    for (Answer& answer : rest) (whole.starts_with(answer.text()) ? before : others).push_back(std::move(answer));
    shown.insert(shown.begin(), std::make_move_iterator(before.begin()), std::make_move_iterator(before.end()));
    samples.push_back(cut(shown, dialogue, weighing));
    rest = std::move(others);
  }
  std::reverse(samples.begin(), samples.end());
  if (samples.size() > 1 && weighing.prompts)
    fail(
        "the model's chat template shows earlier answers otherwise than the model says them, so that the conversation makes {} "
        "samples, and train_on_prompt would learn its questions as often: take train_on_prompt out, or name a template of qft's",
        samples.size());
  return samples;
}

Turn OwnRenderer::answer(const Conversation& conversation, const Message& response, bool) const {
  Dialogue dialogue = dialogue_of(conversation, with_answer(conversation, response));
  return std::move(cut({find_answer(dialogue, dialogue.messages.size() / 2 - 1)}, dialogue, {}).front());
}

std::vector<std::int32_t> OwnRenderer::prompt(const Conversation& conversation) const {
  Dialogue dialogue = dialogue_of(conversation, conversation.prompt);
  return tokenizer_->encode(render(dialogue, dialogue.messages.size(), true).text);
}

std::string OwnRenderer::hash() const {
  const int thinking = options_.enable_thinking ? *options_.enable_thinking : 2;
  return hash_hex(fmt::format("own {} {} {} {}", description_, dump_python_json(options_.variables),
                              options_.default_system.value_or(""), thinking));
}

}  // namespace qft::encode
