#include "turn_reader.h"

#include "qft/core/error.h"

#include <utility>

#include "message_reader.h"
#include "record_value.h"
#include "thought.h"

namespace qft::encode {
namespace {

namespace dom = simdjson::dom;

/// OpenAI's old role for a result; some datasets use it for a call.
constexpr std::string_view kFunctionWord = "function";

/// Lists the roles that the tags name, and the source of the tags.
std::string known_roles(const DatasetSpec& spec) {
  const MessageTags& t = spec.tags;
  std::string words;
  for (const std::string& word : {t.user, t.assistant, t.observation, t.function, t.system})
    if (!word.empty()) words += (words.empty() ? "" : ", ") + word;
  return fmt::format("{} ({})", words, spec.tags_from);
}

/// Describes message `number`, which has an unknown role.
Drop unknown_role(const dom::object& message, std::size_t number, const DatasetSpec& spec) {
  const std::string role = text_or_empty(message, spec.tags.role);
  if (role.empty())
    return {DropReason::role, fmt::format("message {} has no '{}' (role_tag, from {}); its keys are {}", number, spec.tags.role,
                                          spec.tags_from, keys_of(message))};
  return {DropReason::role,
          fmt::format("message {} has the role '{}'; the roles are {}. Name it in dataset_info.json under tags, as "
                      "user_tag, assistant_tag, observation_tag, function_tag or system_tag",
                      number, role, known_roles(spec))};
}

/// Merges adjacent messages that form one turn.
class TurnBuilder {
 public:
  explicit TurnBuilder(Role first) : answers_first_(is_answer(first)) {}

  /// Adds message `number` of the record. Returns the reason if it cannot stand here.
  std::optional<Drop> add(Message message, std::size_t number) {
    Message* last = turns_.empty() ? nullptr : &turns_.back();
    if (last != nullptr && last->role == Role::observation && message.role == Role::observation) {
      last->more_results.push_back(std::move(message));
      return std::nullopt;
    }
    if (last != nullptr && is_answer(last->role) && continues(*last, message)) {
      join(*last, std::move(message), number);
      return std::nullopt;
    }
    const bool answers = is_answer(message.role), expected = (turns_.size() % 2 == 1) != answers_first_;
    if (answers != expected)
      return Drop{DropReason::turns, fmt::format("message {} is {}, but {} is expected", number,
                                                 answers ? "an answer" : "a question", expected ? "an answer" : "a question")};
    turns_.push_back(std::move(message));
    return std::nullopt;
  }

  std::vector<Message> take() { return std::move(turns_); }
  bool has_calls_before() const { return !turns_.empty() && !turns_.back().calls.empty(); }

 private:
  // Whether `next` continues an answer: thought, then text, then calls.
  static bool continues(const Message& last, const Message& next) {
    if (last.is_empty()) return !next.calls.empty();
    if (next.thought) return false;
    if (!stripped(next.text).empty()) return last.thought && last.text.empty() && last.calls.empty();
    return !next.calls.empty();
  }

  static void join(Message& last, Message next, std::size_t number) {
    if (last.loss.value_or(true) != next.loss.value_or(true) || last.weight.value_or(1.0F) != next.weight.value_or(1.0F))
      fail(
          "message {} continues the previous answer, but has another weight (loss, train, loss_scale or weight); give both the "
          "same",
          number);
    if (!last.loss) last.loss = next.loss;
    if (!last.weight) last.weight = next.weight;
    if (last.is_empty()) last.thought = std::move(next.thought);
    if (stripped(last.text).empty()) last.text = std::move(next.text);
    for (Call& call : next.calls) last.calls.push_back(std::move(call));
  }

  std::vector<Message> turns_;
  bool answers_first_;
};

}  // namespace

Turns read_turns(const dom::array& messages, const DatasetSpec& spec, Role first) {
  const MessageReader reader(spec);
  Turns turns;
  TurnBuilder builder(first);
  std::size_t number = 0;
  for (const dom::element element : messages) {
    const dom::object message = object_of(element, fmt::format("message {}", ++number));
    const std::string word = text_or_empty(message, spec.tags.role);
    std::optional<Speaker> speaker = speaker_of(word, spec.tags);
    if (!speaker) {
      turns.fault = unknown_role(message, number, spec);
    } else if (*speaker == Speaker::system) {
      if (number == 1) {
        turns.system = reader.read_text(message, number);
        turns.has_system = true;
        continue;
      }
      turns.fault = Drop{DropReason::turns,
                         fmt::format("message {} has the role '{}', which only the first message may have", number, word)};
    } else {
      if (word == kFunctionWord && builder.has_calls_before() && find(message, "name")) speaker = Speaker::observation;
      turns.fault = builder.add(reader.read(message, number, *speaker), number);
    }
    if (turns.fault) break;
  }
  turns.messages = builder.take();
  return turns;
}

Turns read_sides(const dom::array& pairs, const DatasetSpec& spec, bool may_lack_answer) {
  const MessageReader reader(spec);
  Turns turns;
  std::size_t number = 0;
  for (const dom::element element : pairs) {
    const dom::object pair = object_of(element, fmt::format("message {}", ++number));
    turns.messages.push_back(reader.read_side(pair, number, spec.tags.user, Role::user));
    if (may_lack_answer && number == pairs.size() && !find(pair, spec.tags.assistant)) break;
    turns.messages.push_back(reader.read_side(pair, number, spec.tags.assistant, Role::assistant));
  }
  return turns;
}

}  // namespace qft::encode
