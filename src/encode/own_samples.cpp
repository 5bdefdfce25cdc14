// Finds out how a Jinja template expects the parts of a conversation by rendering short ones (its source alone does not tell: a
// name there may be prose or a comment), and the learned parts of a rendered conversation by rendering its beginnings.
#include "qft/core/error.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "own_renderer.h"
#include "shown_parts.h"
#include "thought.h"

namespace qft::encode {
namespace {

std::string excerpt(std::string_view text, std::size_t at) {
  return excerpt_around(text, at, 30, 50).quoted;
}

/// Returns the pieces that a template marks in the last answer of `whole`: the pieces after the ones that the prompt has too.
/// If the text begins with its prompt, no piece overlaps the prompt.
std::vector<jinja::ByteRange> marked_pieces(const jinja::Rendering& whole, const jinja::Rendering& prompt, std::size_t number) {
  const auto text_of = [](const jinja::Rendering& rendering, std::size_t i) {
    const jinja::ByteRange& piece = rendering.generated[i];
    return std::string_view(rendering.text).substr(piece.begin, piece.end - piece.begin);
  };
  const std::size_t most = std::min(prompt.generated.size(), whole.generated.size());
  std::size_t earlier = 0;
  while (earlier < most && text_of(prompt, earlier) == text_of(whole, earlier)) ++earlier;
  const std::size_t begin = whole.text.starts_with(prompt.text) ? prompt.text.size() : 0;
  std::vector<jinja::ByteRange> ranges;
  for (std::size_t i = earlier; i < whole.generated.size(); ++i) {
    const jinja::ByteRange piece{std::max(whole.generated[i].begin, begin), whole.generated[i].end};
    if (piece.begin < piece.end) ranges.push_back(piece);
  }
  if (ranges.empty())
    fail("the chat template marks no part of answer {} with {{% generation %}}, so there is nothing to learn", number + 1);
  return ranges;
}

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

OwnRenderer::Answer OwnRenderer::find_answer(Dialogue& dialogue, std::size_t number) const {
  const std::size_t at = 2 * number + 1;
  const jinja::Rendering prompt = render(dialogue, at, true);
  jinja::Rendering whole = render(dialogue, at + 1, false);
  if (dialogue.form->chat.has_generation()) {
    std::vector<jinja::ByteRange> ranges = marked_pieces(whole, prompt, number);
    return {number, std::move(whole.text), std::move(ranges)};
  }
  if (!whole.text.starts_with(prompt.text)) {
    const std::size_t differs = first_mismatch(prompt.text, whole.text);
    fail(
        "the model's chat template changes the conversation before answer {} once the answer is there: {} before, {} "
        "after. Such an answer cannot be separated from its prompt; change the record, or name one of qft's templates",
        number + 1, excerpt(prompt.text, differs), excerpt(whole.text, differs));
  }
  if (whole.text.size() == prompt.text.size() && !dialogue.messages[at].is_empty())
    fail("the model's chat template does not show answer {}; is it a template for chats?", number + 1);
  const jinja::ByteRange ranges{prompt.text.size(), whole.text.size()};
  return {number, std::move(whole.text), {ranges}};
}

// Splits an answer in text [begin, end) into weighted parts. Its ending has weight 1, or 0 if the text before it ends with
// weight 0 and more text follows.
std::vector<WeightedText> OwnRenderer::parts_of(std::string_view text, std::span<const jinja::ByteRange> ranges,
                                                const Message& answer, std::string_view question, bool is_last,
                                                const TurnWeighing& weighing) const {
  std::vector<WeightedText> parts;
  std::size_t at = ranges.front().begin;
  for (const jinja::ByteRange& range : ranges) {
    if (range.begin > at) parts.push_back({text.substr(at, range.begin - at), 0.0F});  // between two marked pieces
    std::string_view piece = text.substr(range.begin, range.end - range.begin);
    const std::string_view ending = ending_ ? std::string_view(*ending_) : std::string_view();
    const bool ends = !ending.empty() && piece.ends_with(ending);
    if (ends) piece.remove_suffix(ending.size());
    const std::vector<WeightedText> inside = split_by_weight(piece, answer, question, weighing);
    parts.insert(parts.end(), inside.begin(), inside.end());
    const bool counts = weighing.prompts || is_last || parts.empty() || parts.back().weight > 0;
    if (ends) parts.push_back({ending, counts ? 1.0F : 0.0F});
    at = range.end;
  }
  std::erase_if(parts, [](const WeightedText& part) { return part.text.empty(); });
  return parts;
}

// Cuts the rendering of the last of `answers` into prompts and answers.
TrainingSample OwnRenderer::cut(std::span<const Answer> answers, const Dialogue& dialogue, const TurnWeighing& weighing) const {
  const std::string_view text = answers.back().text;
  const std::string_view prompt = text.substr(0, answers.back().ranges.front().begin);
  require_prompt_shown(prompt, dialogue.system_text, dialogue.variables["tools"],
                       std::span(dialogue.messages).first(2 * answers.back().number + 1), true);
  TrainingSample turns;
  std::size_t at = 0;
  for (const Answer& found : answers) {
    const std::size_t begin = found.ranges.front().begin, end = found.ranges.back().end;
    if (begin < at)
      fail("the chat template shows answer {} before the end of the previous answer, so they cannot be separated",
           found.number + 1);
    Exchange& turn = turns.emplace_back();
    turn.answer = found.number;
    const Message& answer = dialogue.messages[2 * turn.answer + 1];
    const Message& before = dialogue.messages[2 * turn.answer];
    const std::string_view source = text.substr(at, begin - at), target = text.substr(begin, end - begin);
    if (weighing.prompts && weighing.schemes != nullptr)
      append_parts(*tokenizer_, weighing.schemes->split(source, {}), turn.source, turn.source_weights);
    else
      tokenizer_->encode(source, turn.source);
    require_answer_shown(target, answer, turn.answer, !dialogue.drops_thoughts);
    const std::string_view question = before.role == Role::user ? std::string_view(before.text) : std::string_view();
    if (weighing.schemes == nullptr && !answer.weight && found.ranges.size() == 1)
      tokenizer_->encode(target, turn.target);
    else
      append_parts(*tokenizer_, parts_of(text, found.ranges, answer, question, found.number == answers.back().number, weighing),
                   turn.target, turn.target_weights);
    at = end;
  }
  return turns;
}

// Groups the answers that one rendering shows as the model generates them. Each group is in order; the text of its last answer
// is the rendering, and begins with the texts of the other answers.
std::vector<std::vector<OwnRenderer::Answer>> OwnRenderer::group_answers(Dialogue& dialogue,
                                                                         const std::vector<bool>& learned) const {
  std::vector<std::vector<Answer>> groups;
  for (std::size_t number = learned.size(); number-- > 0;) {
    if (!learned[number]) continue;
    Answer answer = find_answer(dialogue, number);
    const auto group = std::ranges::find_if(
        groups, [&](const std::vector<Answer>& answers) { return answers.front().text.starts_with(answer.text); });
    if (group == groups.end()) {
      groups.push_back({std::move(answer)});
    } else {
      answer.text = {};
      group->push_back(std::move(answer));
    }
  }
  for (std::vector<Answer>& group : groups) std::ranges::reverse(group);
  std::ranges::reverse(groups);
  return groups;
}

std::vector<TrainingSample> OwnRenderer::training_samples(const Conversation& conversation, const AnswerChoice& choice,
                                                          const TurnWeighing& weighing) const {
  Dialogue dialogue = dialogue_of(conversation, with_answer(conversation, conversation.responses.front()));
  std::vector<bool> learned = choice.learned;
  if (learned.empty()) learned.assign(dialogue.messages.size() / 2, true);
  // a sample without labels, as with any other template
  if (std::ranges::none_of(learned, std::identity())) learned.back() = true;
  std::vector<TrainingSample> samples;
  for (const std::vector<Answer>& group : group_answers(dialogue, learned)) samples.push_back(cut(group, dialogue, weighing));
  if (samples.size() > 1 && weighing.prompts)
    fail(
        "the model's chat template shows earlier answers differently from the way the model generates them, so the conversation "
        "makes {} "
        "samples, and train_on_prompt would learn its questions that many times; remove train_on_prompt, or name one of qft's "
        "templates",
        samples.size());
  return samples;
}

Exchange OwnRenderer::answer(const Conversation& conversation, const Message& response, bool) const {
  Dialogue dialogue = dialogue_of(conversation, with_answer(conversation, response));
  return std::move(cut(std::array{find_answer(dialogue, dialogue.messages.size() / 2 - 1)}, dialogue, {}).front());
}

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
