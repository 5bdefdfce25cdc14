#include "qft/encode/encoder.h"

#include "qft/core/error.h"

#include <algorithm>
#include <span>

namespace qft::encode {
namespace {

/// A range of an exchange's ids.
struct Part {
  std::int64_t from = 0, count = 0;
};

/// Appends a part of `ids`. Its labels get `weight` times the weights in `runs`; weight 0 makes no labels.
void append(EncodedSequence& sequence, const std::vector<std::int32_t>& ids, Part part, float weight,
            std::span<const WeightRun> runs = {}) {
  const auto begin = static_cast<std::int32_t>(sequence.ids.size()), end = begin + static_cast<std::int32_t>(part.count);
  sequence.ids.insert(sequence.ids.end(), ids.begin() + part.from, ids.begin() + part.from + part.count);
  if (runs.empty()) return sequence.learn(begin, end, weight);
  const auto shift = begin - static_cast<std::int32_t>(part.from);
  std::int32_t from = shift;
  for (const WeightRun& run : runs) {
    sequence.learn(std::max(from, begin), std::min(run.end + shift, end), weight * run.weight);
    from = run.end + shift;
  }
}

/// Whether an answer is learned; `fallback` decides if the data does not.
bool is_learned(const Message& answer, bool fallback) {
  return answer.loss.value_or(fallback) && answer.weight.value_or(1.0F) > 0;
}

/// Whether all answers that training could learn are empty: with `last_only` the last one, else all.
bool has_only_empty_answers(const Conversation& conversation, bool last_only) {
  if (!conversation.responses.front().is_empty()) return false;
  if (last_only) return true;
  for (std::size_t i = 1; i < conversation.prompt.size(); i += 2)
    if (!conversation.prompt[i].is_empty()) return false;
  return true;
}

void append(EncodedSequence& sequence, const std::vector<std::int32_t>& ids) {
  sequence.ids.insert(sequence.ids.end(), ids.begin(), ids.end());
}

std::int64_t length(const std::vector<std::int32_t>& ids) {
  return static_cast<std::int64_t>(ids.size());
}

/// Only answers of conversations can have weights, and only in a stage that weighs labels: others would have no effect.
void require_weighed(const Conversation& conversation, const EncoderOptions& options) {
  const auto& prompt = conversation.prompt;
  for (std::size_t i = 0; i < prompt.size(); i += 2)
    if (const Message& m = prompt[i];
        is_learned(m, false) || (m.weight.value_or(0.0F) > 0) || (options.train_on_prompt && (m.loss || m.weight)))
      fail(
          "question {} has a weight (loss, train, loss_scale or weight), but questions are either all learned with "
          "train_on_prompt, or not at all; remove it",
          i / 2 + 1);
  const bool learns_history = options.kind == SampleKind::conversation;
  if (options.weighs_labels && learns_history) return;
  const auto requests_loss = [](const Message& m) { return m.loss == true || m.weight.value_or(0.0F) > 0; };
  const auto is_weighted = [](const Message& m) { return m.loss == false || m.weight.value_or(1.0F) != 1; };
  bool history = false;
  for (std::size_t i = 1; i < prompt.size(); i += 2)
    history |= requests_loss(prompt[i]) || (learns_history && is_weighted(prompt[i]));
  if (conversation.weight != 1 || history || std::ranges::any_of(conversation.responses, is_weighted))
    fail("it has label weights (loss, train, loss_scale or weight), which only stage {} uses; remove them",
         config::stage_names([](const config::Stage& stage) { return stage.weighs_labels; }));
}

}  // namespace

void EncodedSequence::learn(std::int32_t begin, std::int32_t end, float weight) {
  if (begin >= end || weight == 0) return;
  const bool is_weighted = weight != 1 || !span_weights.empty();
  const float last = span_weights.empty() ? 1.0F : span_weights.back();
  if (!label_spans.empty() && label_spans.back().end == begin && last == weight) {
    label_spans.back().end = end;
    return;
  }
  label_spans.push_back({begin, end});
  if (!is_weighted) return;
  span_weights.resize(label_spans.size(), 1.0F);
  span_weights.back() = weight;
}

std::pair<std::int64_t, std::int64_t> fit_exchange(std::int64_t source, std::int64_t target, std::int64_t budget) {
  std::int64_t most = budget;
  if (target * 2 >= budget) {
    if (source * 2 < budget)
      most = budget - source;
    else
      most = static_cast<std::int64_t>(static_cast<double>(budget) *
                                       (static_cast<double>(target) / static_cast<double>(source + target)));
  }
  target = std::min(most, target);
  return {std::min(std::max<std::int64_t>(budget - target, 0), source), target};
}

namespace {

/// Number of ids of an exchange's source and target that a sample keeps.
struct KeptExchange {
  std::int64_t source = 0, target = 0;
};

KeptExchange fit(const Exchange& turn, std::int64_t budget) {
  const auto [source, target] = fit_exchange(length(turn.source), length(turn.target), budget);
  return {source, target};
}

// LLaMA-Factory's shares of the budget, in order of importance: mask_history serves the last exchange first.
std::vector<KeptExchange> shares_of(const TrainingSample& turns, std::int64_t budget, bool mask_history) {
  std::vector<KeptExchange> kept(turns.size());
  for (std::size_t i = 0; i < turns.size() && budget > 0; ++i) {
    const std::size_t t = mask_history ? turns.size() - 1 - i : i;
    kept[t] = fit(turns[t], budget);
    budget -= kept[t].source + kept[t].target;
  }
  return kept;
}

// One window without gaps. If earlier exchanges are only context inside the first source, the window ends with the last
// exchange and has whole answers; else it begins with the first exchange.
std::vector<KeptExchange> window_of(const TrainingSample& turns, std::int64_t budget, bool mask_history) {
  std::vector<KeptExchange> kept(turns.size());
  const auto is_whole = [&](std::size_t t) {
    return kept[t].source == length(turns[t].source) && kept[t].target == length(turns[t].target);
  };
  if (mask_history || turns.front().answer > 0) {
    std::size_t t = turns.size() - 1;
    kept[t] = fit(turns[t], budget);
    while (t > 0 && is_whole(t)) {
      budget -= kept[t].source + kept[t].target;
      --t;
      const std::int64_t target = length(turns[t].target);
      if (target >= budget) break;
      kept[t] = {std::min(length(turns[t].source), budget - target), target};
    }
    return kept;
  }
  kept[0] = fit(turns[0], budget);
  for (std::size_t t = 1; t < turns.size() && kept[t - 1].target == length(turns[t - 1].target); ++t) {
    budget -= kept[t - 1].source + kept[t - 1].target;
    if (length(turns[t].source) >= budget) break;
    kept[t] = {length(turns[t].source), std::min(length(turns[t].target), budget - length(turns[t].source))};
  }
  return kept;
}

}  // namespace

Encoder::Encoder(ChatTemplate chat_template, const EncoderOptions& options)
    : template_(std::move(chat_template)), options_(options), weights_(options.loss_scale) {
  const TemplateSpec& spec = template_.spec();
  if (options_.train_on_prompt && spec.efficient_eos)
    fail_config("train_on_prompt does not work with template '{}', which has no end token after each turn", spec.name);
  if (spec.efficient_eos && !template_.eos_id())
    fail_config("template '{}' ends conversations with the tokenizer's end token, but the tokenizer has none", spec.name);
  if (options_.kind == SampleKind::document) document_end_ = template_.document_end();
  if (options_.add_bos_token && !template_.tokenizer().bos_id())
    fail_config("tokenizer_config.json says add_bos_token, but names no bos_token");
}

std::variant<std::vector<Encoded>, DropReason> Encoder::encode(const Conversation& conversation) const {
  if (conversation.prompt.size() % 2 != 1) return DropReason::turns;
  const bool answers =
      options_.kind == SampleKind::conversation || options_.kind == SampleKind::pair || options_.kind == SampleKind::feedback;
  if (answers) {
    const std::size_t expected = options_.kind == SampleKind::conversation ? 1 : 2;
    if (conversation.responses.size() != expected) {
      if (!conversation.answer_fault.empty()) throw Error(conversation.answer_fault);
      return DropReason::no_answer;
    }
    if (options_.kind == SampleKind::feedback && !conversation.desirable) return DropReason::no_answer;
  }
  require_weighed(conversation, options_);
  std::vector<bool> learned;
  if (options_.kind == SampleKind::conversation) {
    learned = learned_answers(conversation);
    if (has_only_empty_answers(conversation, options_.mask_history)) return DropReason::empty_answer;
  } else if (answers && std::ranges::any_of(conversation.responses, &Message::is_empty)) {
    return DropReason::empty_answer;
  }
  std::vector<Encoded> samples = encode_kind(conversation, learned);
  for (const Encoded& encoded : samples)
    for (const EncodedSequence& sequence : encoded.sequences)
      if (sequence.ids.empty()) return DropReason::no_tokens;
  return samples;
}

std::vector<Encoded> Encoder::encode_kind(const Conversation& conversation, const std::vector<bool>& learned) const {
  switch (options_.kind) {
    case SampleKind::document:
      return {encode_document(conversation)};
    case SampleKind::pair:
      return {encode_pair(conversation)};
    case SampleKind::feedback:
      return {encode_feedback(conversation)};
    case SampleKind::sequence_label:
      return {encode_labelled(conversation)};
    case SampleKind::texts:
      return {encode_texts(conversation)};
    case SampleKind::ranking:
      return {encode_ranking(conversation)};
    case SampleKind::conversation:
      break;
  }
  return encode_conversation(conversation, learned);
}

void Encoder::append_document(const Conversation& conversation, std::vector<std::int32_t>& ids) const {
  template_.tokenizer().encode(conversation.prompt.front().text + document_end_, ids);
}

std::optional<std::int32_t> Encoder::block_start() const {
  return options_.add_bos_token ? template_.tokenizer().bos_id() : std::nullopt;
}

Encoded Encoder::encode_document(const Conversation& conversation) const {
  Encoded encoded;
  EncodedSequence& sequence = encoded.sequences.emplace_back();
  if (const auto bos = block_start()) sequence.ids.push_back(*bos);
  append_document(conversation, sequence.ids);
  encoded.truncated = length(sequence.ids) > options_.cutoff_len;
  if (encoded.truncated) sequence.ids.resize(static_cast<std::size_t>(options_.cutoff_len));
  sequence.label_spans.push_back({0, static_cast<std::int32_t>(sequence.ids.size())});
  return encoded;
}

// Returns for each answer whether it is learned; empty answers never are.
std::vector<bool> Encoder::learned_answers(const Conversation& conversation) const {
  std::vector<bool> learned;
  for (std::size_t i = 1; i < conversation.prompt.size(); i += 2) {
    const Message& answer = conversation.prompt[i];
    learned.push_back(is_learned(answer, !options_.mask_history) && !answer.is_empty());
  }
  const Message& last = conversation.responses.front();
  learned.push_back(is_learned(last, true) && !last.is_empty());
  return learned;
}

std::vector<Encoded> Encoder::encode_conversation(const Conversation& conversation, const std::vector<bool>& learned) const {
  const TurnWeighing weighing{weights_.empty() ? nullptr : &weights_, options_.train_on_prompt};
  std::vector<Encoded> samples;
  for (const TrainingSample& turns : template_.training_samples(conversation, {learned, options_.mask_history}, weighing))
    samples.push_back(join_turns(turns, conversation, learned));
  return samples;
}

// Appends `count` ids of an exchange's source. As in LLaMA-Factory, a source that does not fit loses its end. A Jinja template
// keeps the end, which asks for the answer: its source may be a whole conversation, and the last question matters most.
void Encoder::append_prompt(const Exchange& turn, std::int64_t count, float weight, EncodedSequence& sequence) const {
  const std::int64_t from = template_.is_jinja() ? length(turn.source) - count : 0;
  append(sequence, turn.source, {from, count}, weight, turn.source_weights);
}

// Joins exchanges and cuts them to cutoff_len.
Encoded Encoder::join_turns(const TrainingSample& turns, const Conversation& conversation,
                            const std::vector<bool>& learned) const {
  const bool efficient_eos = template_.spec().efficient_eos;
  const std::int64_t budget = options_.cutoff_len - (efficient_eos ? 1 : 0);
  const std::vector<KeptExchange> kept =
      template_.is_jinja() ? window_of(turns, budget, options_.mask_history) : shares_of(turns, budget, options_.mask_history);
  Encoded encoded;
  EncodedSequence& sequence = encoded.sequences.emplace_back();
  for (std::size_t t = 0; t < turns.size(); ++t) {
    const float weight = learned[turns[t].answer] ? conversation.weight : 0;
    append_prompt(turns[t], kept[t].source, options_.train_on_prompt ? conversation.weight : 0, sequence);
    append(sequence, turns[t].target, {0, kept[t].target}, weight, turns[t].target_weights);
    encoded.truncated |= kept[t].source + kept[t].target < length(turns[t].source) + length(turns[t].target);
  }
  // LLaMA-Factory also learns this token in place of each later question's first token. Spans label a token with itself, so
  // here only the end of the conversation teaches it.
  if (efficient_eos) append(sequence, {*template_.eos_id()}, {0, 1}, learned.back() ? conversation.weight : 0);
  return encoded;
}

Encoded Encoder::encode_pair(const Conversation& conversation) const {
  const bool thinks = std::ranges::any_of(conversation.responses, [&](const Message& m) { return template_.has_thought(m); });
  Exchange answers[2] = {template_.encode_answer(conversation, conversation.responses[0], thinks),
                         template_.encode_answer(conversation, conversation.responses[1], thinks)};
  if (template_.spec().efficient_eos)
    for (Exchange& answer : answers) answer.target.push_back(*template_.eos_id());
  const auto longest = [&](std::vector<std::int32_t> Exchange::* part) {
    return std::max(length(answers[0].*part), length(answers[1].*part));
  };
  const auto [source, target] = fit_exchange(longest(&Exchange::source), longest(&Exchange::target), options_.cutoff_len);
  Encoded encoded;
  for (const Exchange& answer : answers) {
    EncodedSequence& sequence = encoded.sequences.emplace_back();
    append_prompt(answer, std::min(source, length(answer.source)), 0, sequence);
    append(sequence, answer.target, {0, std::min(target, length(answer.target))}, 1);
    encoded.truncated |= length(sequence.ids) < length(answer.source) + length(answer.target);
  }
  return encoded;
}

Encoded Encoder::encode_feedback(const Conversation& conversation) const {
  Encoded encoded;
  const bool thinks = std::ranges::any_of(conversation.responses, [&](const Message& m) { return template_.has_thought(m); });
  for (const Message& response : conversation.responses) {
    Exchange answer = template_.encode_answer(conversation, response, thinks);
    if (template_.spec().efficient_eos) answer.target.push_back(*template_.eos_id());
    const auto [source, target] = fit_exchange(length(answer.source), length(answer.target), options_.cutoff_len);
    EncodedSequence& sequence = encoded.sequences.emplace_back();
    append_prompt(answer, source, 0, sequence);
    append(sequence, answer.target, {0, target}, 1);
    encoded.truncated |= length(sequence.ids) < length(answer.source) + length(answer.target);
  }
  return encoded;
}

Encoded Encoder::encode_labelled(const Conversation& conversation) const {
  Encoded encoded;
  EncodedSequence& sequence = encoded.sequences.emplace_back();
  if (const auto bos = block_start()) sequence.ids.push_back(*bos);
  if (conversation.responses.empty()) {
    append(sequence, template_.render_prompt(conversation));
  } else {
    const Exchange answer = template_.encode_answer(conversation, conversation.responses.front());
    append(sequence, answer.source);
    append(sequence, answer.target);
    if (template_.spec().efficient_eos) append(sequence, {*template_.eos_id()});
  }
  const std::int64_t over = length(sequence.ids) - options_.cutoff_len;
  encoded.truncated = over > 0;
  if (over > 0 && template_.is_jinja())
    sequence.ids.erase(sequence.ids.begin(), sequence.ids.begin() + over);
  else if (over > 0)
    sequence.ids.resize(static_cast<std::size_t>(options_.cutoff_len));
  return encoded;
}

bool is_desirable(const std::vector<std::pair<std::string, std::string>>& tags) {
  for (const auto& [name, value] : tags)
    if (name == kFeedbackTag) return value == "true";
  fail("an item of stage kto lacks the tag {}; pack the data again", kFeedbackTag);
}

}  // namespace qft::encode
