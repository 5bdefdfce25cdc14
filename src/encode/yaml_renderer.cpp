#include "yaml_renderer.h"

#include "qft/core/error.h"
#include "qft/core/hash.h"

#include <algorithm>
#include <utility>

#include "thought.h"
#include "tool_format.h"

namespace qft::encode {
namespace {

// LLaMA-Factory's note on reasoning in the system message of OpenAI records.
constexpr std::string_view kThinkingOff = "detailed thinking off", kThinkingOn = "detailed thinking on";
// Separates the results of parallel calls.
constexpr std::string_view kResultSeparator = "\n</tool_response>\n<tool_response>\n";

void add_thinking_note(std::string& system, bool has_tools) {
  if (has_tools) {
    if (!system.empty()) system += '\n';
  } else if (system.empty()) {
    system = kThinkingOff;
  } else if (system.find(kThinkingOn) == system.npos && system.find(kThinkingOff) == system.npos) {
    system.append("\n").append(kThinkingOff);
  }
}

// Returns the start of the messages after the user's last question: a chain of calls in which a model still sees its thoughts.
std::size_t begin_of_call_chain(const std::vector<Message>& messages) {
  for (std::size_t i = messages.size(); i > 0; --i)
    if (messages[i - 1].role == Role::user) return i;
  return 0;
}

// Returns a turn's text before its content.
std::string marks_before(const TurnFormat& format) {
  std::string text;
  for (const TurnPiece& piece : format) {
    if (piece.kind != TurnPiece::Kind::text) continue;
    text += piece.before;
    if (piece.has_content) break;
  }
  return text;
}

}  // namespace

struct YamlRenderer::Body {
  const Message* message = nullptr;
  std::string text;  // with thought and calls
};

struct YamlRenderer::View {
  const Conversation& conversation;
  std::span<const Body> bodies;
  TurnWeighing weighing = {};
  bool weighs = false;            // answers have weights
  std::size_t first_thought = 0;  // answers from here on have a thought if the template reasons
};

struct YamlRenderer::Tokens {
  std::vector<std::int32_t> ids;
  std::vector<WeightRun> runs = {};  // empty: every id has weight 1

  void append_run(float weight) { append_weight_run(static_cast<std::int32_t>(ids.size()), weight, runs); }
};

YamlRenderer::YamlRenderer(const TemplateSpec& spec, std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
                           const TemplateOptions& options, std::optional<std::int32_t> eos_id)
    : spec_(spec),
      tokenizer_(std::move(tokenizer)),
      options_(options),
      tool_format_(&find_tool_format(spec.tool_format)),
      eos_id_(eos_id) {
  if (spec_.reasoning) empty_thought_ = tokenizer_->encode(spec_.thought_open + spec_.thought_close);
}

// Appends calls to the text, with a line end between them unless the text ends with one.
std::string YamlRenderer::with_calls(std::string text, bool has_text, const Message& message) const {
  if (message.calls.empty()) return text;
  if (has_text && marks_before(spec_.function) != marks_before(spec_.assistant))
    fail(
        "an answer has text besides its calls, but template '{}' puts calls between separate marks; remove the text, or "
        "use the model's own chat template",
        spec_.name);
  if (!text.empty() && !text.ends_with('\n')) text += tool_format_->before_calls;
  return text + tool_format_->write_calls(message.calls);
}

YamlRenderer::Body YamlRenderer::body_of(const Message& message, bool keeps_thought) const {
  if (message.role == Role::observation) {
    std::string text = message.text;
    for (const Message& result : message.more_results) text.append(kResultSeparator).append(result.text);
    return {&message, std::move(text)};
  }
  if (!is_answer(message.role)) return {&message, message.text};
  const std::string_view open = stripped(spec_.thought_open), close = stripped(spec_.thought_close);
  const auto split = split_thought(message.text, open, close);
  const bool has_key = message.thought && !stripped(*message.thought).empty();
  const std::string_view rest = split ? split->text : std::string_view(message.text);
  if (!spec_.reasoning) {
    if (has_key)
      fail(
          "an answer has a thought in a separate key (reasoning_content, reasoning or thinking), but template '{}' does not "
          "support thoughts; name a template that does, use the model's own chat template, or write the thought into the content",
          spec_.name);
    return {&message, with_calls(message.text, !stripped(rest).empty(), message)};
  }
  if (has_key && split && stripped(*message.thought) != stripped(split->thought))
    fail("an answer has one thought in a separate key and another one in its text; keep one of the two");
  std::string text;
  if (keeps_thought && (split || has_key)) {
    const std::string_view thought = has_key ? stripped(*message.thought, "\n") : split->thought;
    text.append(spec_.thought_open).append(thought).append(spec_.thought_close);
  }
  std::string_view visible = rest;
  if (!keeps_thought || has_key) visible.remove_prefix(std::min(visible.find_first_not_of('\n'), visible.size()));
  return {&message, with_calls(text.append(visible), !stripped(rest).empty(), message)};
}

std::vector<YamlRenderer::Body> YamlRenderer::bodies_of(const std::vector<Message>& messages, bool last_thought_only) const {
  const bool never = spec_.reasoning && options_.enable_thinking == std::optional<bool>(false);
  const std::size_t chain = begin_of_call_chain(messages);
  std::vector<Body> bodies;
  bodies.reserve(messages.size());
  for (std::size_t i = 0; i < messages.size(); ++i)
    bodies.push_back(body_of(messages[i], !never && (!last_thought_only || i >= chain || i + 1 == messages.size())));
  return bodies;
}

void YamlRenderer::append_mark(const TurnPiece& piece, std::vector<std::int32_t>& ids) const {
  if (piece.kind == TurnPiece::Kind::bos) {
    if (tokenizer_->bos_id()) ids.push_back(*tokenizer_->bos_id());
    return;
  }
  if (!eos_id_) fail_config("template '{}' ends turns with the tokenizer's end token, but the tokenizer has none", spec_.name);
  ids.push_back(*eos_id_);
}

void YamlRenderer::append(const TurnFormat& format, std::string_view content, const TokenWeights* prompts, Tokens& tokens) const {
  for (const TurnPiece& piece : format) {
    if (piece.kind != TurnPiece::Kind::text) {
      append_mark(piece, tokens.ids);
      if (prompts != nullptr) tokens.append_run(1.0F);
      continue;
    }
    std::string text;
    text.reserve(piece.before.size() + content.size() + piece.after.size());
    text = piece.before;
    if (piece.has_content) text.append(content).append(piece.after);
    if (prompts != nullptr)
      append_parts(*tokenizer_, prompts->split(text, {}), tokens.ids, tokens.runs);
    else if (!text.empty())
      tokenizer_->encode(text, tokens.ids);
  }
}

// Appends an answer in weighted parts; a learned empty thought belongs to its text.
void YamlRenderer::append_answer(const View& view, std::size_t number, Tokens& tokens) const {
  const Body& body = view.bodies[number];
  const bool thinks = number >= view.first_thought && learns_empty_thought(body.text);
  const std::string content = (thinks ? spec_.thought_open + spec_.thought_close : std::string()) + body.text;
  const Message* before = number > 0 ? view.bodies[number - 1].message : nullptr;
  const std::string_view question =
      before != nullptr && before->role == Role::user ? std::string_view(before->text) : std::string_view();
  const std::vector<WeightedText> parts = split_by_weight(content, *body.message, question, view.weighing);
  const bool ends = view.weighing.prompts || number + 1 == view.bodies.size() || parts.empty() || parts.back().weight > 0;
  float marks = 1.0F;
  for (const TurnPiece& piece : format_of(body)) {
    if (piece.kind != TurnPiece::Kind::text) {
      append_mark(piece, tokens.ids);
      tokens.append_run(marks);
      continue;
    }
    std::vector<WeightedText> texts = {{piece.before, marks}};
    if (piece.has_content) {
      texts.insert(texts.end(), parts.begin(), parts.end());
      marks = ends ? 1.0F : 0.0F;
      texts.push_back({piece.after, marks});
    }
    std::erase_if(texts, [](const WeightedText& part) { return part.text.empty(); });
    append_parts(*tokenizer_, texts, tokens.ids, tokens.runs);
  }
}

const TurnFormat& YamlRenderer::format_of(const Body& body) const {
  if (body.message->role == Role::user) return spec_.user;
  if (body.message->role == Role::observation) return spec_.observation;
  return body.message->calls.empty() ? spec_.assistant : spec_.function;
}

std::string YamlRenderer::system_of(const View& view) const {
  const Conversation& conversation = view.conversation;
  if (!conversation.documents.empty() || !conversation.template_kwargs.empty())
    fail(
        "the record has documents or chat_template_kwargs, which template '{}' does not show; use the model's own chat template, "
        "or remove the columns from dataset_info.json",
        spec_.name);
  std::string system = conversation.system;
  if (conversation.thinking_note) add_thinking_note(system, !conversation.tools.empty());
  if (system.empty()) system = spec_.default_system;
  if (!conversation.tools.empty()) system += tool_format_->describe_tools(conversation.tools);
  return system;
}

// Returns the tokens of each message (at least one); the first also has the prefix and the system message.
std::vector<YamlRenderer::Tokens> YamlRenderer::encode(const View& view) const {
  std::vector<Tokens> encoded(view.bodies.size());
  const TokenWeights* prompts = view.weighing.prompts ? view.weighing.schemes : nullptr;
  append(spec_.prefix, {}, prompts, encoded[0]);
  const std::string system = system_of(view);
  if (!system.empty() && !spec_.system_in_user) append(spec_.system, system, prompts, encoded[0]);
  for (std::size_t i = 0; i < view.bodies.size(); ++i) {
    const Body& body = view.bodies[i];
    if (i == 0 && !system.empty() && spec_.system_in_user && body.message->role == Role::user) {
      const TurnPiece& piece = spec_.system.front();
      append(spec_.user, piece.before + system + piece.after + body.text, prompts, encoded[i]);
    } else if (!is_answer(body.message->role)) {
      append(format_of(body), body.text, prompts, encoded[i]);
    } else if (view.weighs && (view.weighing.schemes != nullptr || body.message->weight)) {
      append_answer(view, i, encoded[i]);
    } else {
      append(format_of(body), body.text, nullptr, encoded[i]);
    }
  }
  return encoded;
}

bool YamlRenderer::lacks_thought(std::string_view text) const {
  return text.find(stripped(spec_.thought_open)) == text.npos && text.find(stripped(spec_.thought_close)) == text.npos;
}

bool YamlRenderer::learns_empty_thought(std::string_view text) const {
  return spec_.reasoning && options_.enable_thinking.value_or(false) && lacks_thought(text);
}

std::vector<TrainingSample> YamlRenderer::training_samples(const Conversation& conversation, const AnswerChoice& choice,
                                                           const TurnWeighing& weighing) const {
  const std::vector<Message> messages = with_answer(conversation, conversation.responses.front());
  QFT_ASSERT(messages.size() % 2 == 0, "a conversation of {} messages", messages.size());
  const bool last_thought_only = spec_.reasoning && choice.last_only && !options_.preserve_thinking;
  const std::vector<Body> bodies = bodies_of(messages, last_thought_only);
  const std::size_t first_thought = last_thought_only ? messages.size() - 1 : 0;
  std::vector<Tokens> encoded = encode({conversation, bodies, weighing, true, first_thought});
  TrainingSample turns;
  for (std::size_t i = 0; i < encoded.size(); i += 2) {
    Tokens &source = encoded[i], &target = encoded[i + 1];
    const std::string& text = bodies[i + 1].text;
    const bool has_thought = !target.runs.empty() && learns_empty_thought(text);  // added by append_answer()
    if (spec_.reasoning && i + 1 >= first_thought && !has_thought && lacks_thought(text)) {
      std::vector<std::int32_t>& ids = learns_empty_thought(text) ? target.ids : source.ids;
      ids.insert(learns_empty_thought(text) ? ids.begin() : ids.end(), empty_thought_.begin(), empty_thought_.end());
      if (!source.runs.empty())
        source.append_run(weighing.schemes->split(spec_.thought_open + spec_.thought_close, {}).front().weight);
    }
    turns.push_back({std::move(source.ids), std::move(target.ids), std::move(source.runs), std::move(target.runs), i / 2});
  }
  return {std::move(turns)};
}

Exchange YamlRenderer::answer(const Conversation& conversation, const Message& response, bool learns_thought) const {
  const std::vector<Message> messages = with_answer(conversation, response);
  const std::vector<Body> bodies = bodies_of(messages, spec_.reasoning && !options_.preserve_thinking);
  std::vector<Tokens> encoded = encode({conversation, bodies});
  Exchange turn;
  turn.target = std::move(encoded.back().ids);
  encoded.pop_back();
  for (const Tokens& part : encoded) turn.source.insert(turn.source.end(), part.ids.begin(), part.ids.end());
  if (!spec_.reasoning || !lacks_thought(bodies.back().text)) return turn;
  const bool learned = options_.enable_thinking.value_or(learns_thought);
  std::vector<std::int32_t>& ids = learned ? turn.target : turn.source;
  ids.insert(learned ? ids.begin() : ids.end(), empty_thought_.begin(), empty_thought_.end());
  return turn;
}

std::vector<std::int32_t> YamlRenderer::prompt(const Conversation& conversation) const {
  return answer(conversation, {Role::assistant, ""}, false).source;
}

std::string YamlRenderer::hash() const {
  const int thinking = options_.enable_thinking ? *options_.enable_thinking : 2;
  return hash_hex(
      fmt::format("{} {} {}", spec_.hash(), spec_.reasoning ? thinking : 0, spec_.reasoning && options_.preserve_thinking));
}

}  // namespace qft::encode
