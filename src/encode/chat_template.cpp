#include "qft/encode/chat_template.h"

#include "qft/config/run_config.h"
#include "qft/core/error.h"
#include "qft/core/hash.h"
#include "qft/core/log.h"

#include <algorithm>
#include <utility>

#include "tool_format.h"

namespace qft::encode {
namespace {

constexpr std::string_view kLastResortEos = "<|endoftext|>";

std::string_view strip(std::string_view text) {
  constexpr std::string_view kSpace = " \n\r\t\v\f";
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) + 1 - first);
}

struct Range {
  std::size_t begin = 0, inner_begin = 0, inner_end = 0, end = 0;
};

// The first `open` ... `close` at or after `from`.
std::optional<Range> find_block(std::string_view text, std::string_view open, std::string_view close, std::size_t from = 0) {
  const std::size_t begin = text.find(open, from);
  if (begin == text.npos) return std::nullopt;
  const std::size_t inner_end = text.find(close, begin + open.size());
  if (inner_end == text.npos) return std::nullopt;
  return Range{begin, begin + open.size(), inner_end, inner_end + close.size()};
}

std::string remove_all(std::string text, const std::string& part) {
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at)) text.erase(at, part.size());
  return text;
}

bool is_token(const tokenizer::Tokenizer& tokenizer, const std::string& text) {
  const std::optional<std::int32_t> id = tokenizer.token_to_id(text);
  return id && tokenizer.encode(text) == std::vector{*id};
}

std::vector<Message> join(const std::vector<Message>& prompt, const Message& response) {
  std::vector<Message> messages;
  messages.reserve(prompt.size() + 1);
  messages = prompt;
  messages.push_back(response);
  return messages;
}

}  // namespace

struct ChatTemplate::View {
  std::span<const Message> messages;
  std::string_view system, tools;
  TurnWeighing weighing = {};
  bool weighs = false;            // answers have weights
  std::size_t first_thought = 0;  // answers from here on have a thought where the template reasons
};

struct ChatTemplate::Tokens {
  std::vector<std::int32_t> ids;
  std::vector<WeightRun> runs = {};  // empty: all count 1

  void count_to_here(float weight) {
    const auto end = static_cast<std::int32_t>(ids.size());
    if (!runs.empty() && runs.back().weight == weight)
      runs.back().end = end;
    else
      runs.push_back({end, weight});
  }
};

ChatTemplate::ChatTemplate(TemplateSpec spec, std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
                           const TemplateOptions& options)
    : spec_(std::move(spec)), tokenizer_(std::move(tokenizer)), options_(options) {
  if (!options_.tool_format.empty()) set_tool_format(spec_, options_.tool_format);
  tool_format_ = &find_tool_format(spec_.tool_format);
  if (options_.default_system) spec_.default_system = *options_.default_system;
  check_special_tokens();
  if (!spec_.pack_only.empty())
    log::warn("template '{}' is that of {} models, which qft does not train: {}", spec_.name, spec_.pack_only,
              options_.lenient ? "the pack is for another program" : "this model has a format of its own");
  if (spec_.replace_eos)
    eos_id_ = tokenizer_->token_to_id(spec_.stop_words.front());
  else
    eos_id_ = tokenizer_->eos_id() ? tokenizer_->eos_id() : tokenizer_->token_to_id(kLastResortEos);
  if (spec_.reasoning) empty_thought_ = tokenizer_->encode(spec_.thought_open + spec_.thought_close);
}

std::pair<TemplateSpec, TemplateOptions> ChatTemplate::choose(const config::RunConfig& config) {
  const config::DataArgs& data = config.data;
  std::string name = data.template_name;
  if (name.empty() && config.finetuning.stage == "pt") name = "empty";
  if (name.empty()) {
    name = guess_template(config.tokenizer_path());
    if (name.empty())
      fail_config("template is not given, and the chat template of '{}' does not say which one it is: name one of {}",
                  config.tokenizer_path(), list_templates());
    static std::string said;  // for each part of the data it is told anew
    const std::string note = fmt::format("template {}: recognised by the chat template of '{}'", name, config.tokenizer_path());
    if (std::exchange(said, note) != note) log::info("{}", note);
  }
  TemplateOptions options;
  if (!data.default_system.empty() || config.given.contains("default_system")) options.default_system = data.default_system;
  options.tool_format = data.tool_format;
  options.enable_thinking = data.enable_thinking;
  options.preserve_thinking = data.preserve_thinking;
  return {find_template(name), options};
}

ChatTemplate ChatTemplate::from_config(const config::RunConfig& config, std::shared_ptr<const tokenizer::Tokenizer> tokenizer) {
  auto [spec, options] = choose(config);
  return ChatTemplate(std::move(spec), std::move(tokenizer), options);
}

ChatTemplate ChatTemplate::for_packing(const config::RunConfig& config) {
  auto [spec, options] = choose(config);
  options.lenient = true;
  auto tokenizer = tokenizer::Tokenizer::load(config.tokenizer_path());
  const std::int32_t vocab_size = tokenizer->vocab_size();
  const auto is_missing = [&](const std::string& word) { return !is_token(*tokenizer, word); };
  if (std::any_of(spec.stop_words.begin(), spec.stop_words.end(), is_missing))
    tokenizer = tokenizer::Tokenizer::load(config.tokenizer_path(), spec.stop_words);
  for (std::int32_t id = vocab_size; id < tokenizer->vocab_size(); ++id)
    log::warn(
        "template '{}' adds '{}' to the vocabulary as token {}: the model and its tokenizer must have it too "
        "before they are trained on this",
        spec.name, tokenizer->id_to_token(id), id);
  return ChatTemplate(std::move(spec), std::move(tokenizer), options);
}

void ChatTemplate::check_special_tokens() const {
  for (const std::string& token : spec_.special_tokens()) {
    if (is_token(*tokenizer_, token)) continue;
    if (!options_.lenient)
      fail_config(
          "template '{}' ({}) does not fit the tokenizer: '{}' is not one of its added tokens. Choose the "
          "template of this model family, or a tokenizer that has the token",
          spec_.name, spec_.origin, token);
    log::warn("template '{}' ({}): '{}' is no token of the tokenizer: it is encoded as plain text", spec_.name, spec_.origin,
              token);
  }
}

void ChatTemplate::append_mark(const TurnPiece& piece, std::vector<std::int32_t>& ids) const {
  if (piece.kind == TurnPiece::Kind::bos) {
    if (tokenizer_->bos_id()) ids.push_back(*tokenizer_->bos_id());
    return;
  }
  if (!eos_id_) fail_config("template '{}' ends turns with the tokenizer's end token, but the tokenizer names none", spec_.name);
  ids.push_back(*eos_id_);
}

void ChatTemplate::append(const TurnFormat& format, std::string_view content, const TokenWeights* prompts, Tokens& tokens) const {
  for (const TurnPiece& piece : format) {
    if (piece.kind != TurnPiece::Kind::text) {
      append_mark(piece, tokens.ids);
      if (prompts != nullptr) tokens.count_to_here(1.0F);
      continue;
    }
    std::string text;
    text.reserve(piece.before.size() + content.size() + piece.after.size());
    text = piece.before;
    if (piece.has_content) text.append(content).append(piece.after);
    if (prompts != nullptr)
      append_parts(prompts->split(text, {}), tokens);
    else if (!text.empty())
      tokenizer_->encode(text, tokens.ids);
  }
}

// Neighbours that count alike are one text for the tokenizer.
void ChatTemplate::append_parts(std::span<const WeightedText> parts, Tokens& tokens) const {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    text += parts[i].text;
    if (i + 1 < parts.size() && parts[i + 1].weight == parts[i].weight) continue;
    tokenizer_->encode(text, tokens.ids);
    tokens.count_to_here(parts[i].weight);
    text.clear();
  }
}

// An answer by the parts of its text, which an empty thought that is learned belongs to.
void ChatTemplate::append_answer(const View& view, std::size_t number, Tokens& tokens) const {
  const Message& message = view.messages[number];
  const bool thinks = number >= view.first_thought && learns_empty_thought(message);
  const std::string content = (thinks ? spec_.thought_open + spec_.thought_close : std::string()) + content_of(message);
  const Message* before = number > 0 ? &view.messages[number - 1] : nullptr;
  const std::string_view question =
      before != nullptr && before->role == Role::user ? std::string_view(before->text) : std::string_view();
  std::vector<WeightedText> parts;
  if (message.weight || view.weighing.schemes == nullptr)
    parts.push_back({content, message.weight.value_or(1.0F)});
  else
    parts = view.weighing.schemes->split(content, question);
  const bool ends = view.weighing.prompts || number + 1 == view.messages.size() || parts.empty() || parts.back().weight > 0;
  float marks = 1.0F;
  for (const TurnPiece& piece : format_of(message.role)) {
    if (piece.kind != TurnPiece::Kind::text) {
      append_mark(piece, tokens.ids);
      tokens.count_to_here(marks);
      continue;
    }
    std::vector<WeightedText> texts = {{piece.before, marks}};
    if (piece.has_content) {
      texts.insert(texts.end(), parts.begin(), parts.end());
      marks = ends ? 1.0F : 0.0F;
      texts.push_back({piece.after, marks});
    }
    std::erase_if(texts, [](const WeightedText& part) { return part.text.empty(); });
    append_parts(texts, tokens);
  }
}

// A call's JSON in the tool format; text before and after <tool_call> words, or a thought, stays in front of it.
std::string ChatTemplate::format_call(const std::string& text) const {
  if (const auto call = find_block(text, spec_.call_open, spec_.call_close)) {
    const std::string block = text.substr(call->begin, call->end - call->begin);
    const std::string json = text.substr(call->inner_begin, call->inner_end - call->inner_begin);
    return remove_all(text, block) + tool_format_->write_calls(parse_calls(json));
  }
  if (const auto thought = find_block(text, spec_.thought_open, spec_.thought_close)) {
    const std::string block = text.substr(thought->begin, thought->end - thought->begin);
    return block + tool_format_->write_calls(parse_calls(remove_all(text, block)));
  }
  return tool_format_->write_calls(parse_calls(text));
}

const TurnFormat& ChatTemplate::format_of(Role role) const {
  switch (role) {
    case Role::user:
      return spec_.user;
    case Role::assistant:
      return spec_.assistant;
    case Role::observation:
      return spec_.observation;
    case Role::function:
      break;
  }
  return spec_.function;
}

std::string ChatTemplate::content_of(const Message& message) const {
  return message.role == Role::function ? format_call(message.text) : message.text;
}

// The tokens of each message (there is at least one); the first has the prefix and the system message in front.
std::vector<ChatTemplate::Tokens> ChatTemplate::encode(const View& view) const {
  std::vector<Tokens> encoded(view.messages.size());
  const TokenWeights* prompts = view.weighing.prompts ? view.weighing.schemes : nullptr;
  append(spec_.prefix, {}, prompts, encoded[0]);
  std::string system(view.system.empty() ? std::string_view(spec_.default_system) : view.system);
  const bool has_system = !system.empty() || !view.tools.empty();
  if (!view.tools.empty()) system += tool_format_->describe_tools(view.tools);
  if (has_system && !spec_.system_in_user) append(spec_.system, system, prompts, encoded[0]);
  for (std::size_t i = 0; i < view.messages.size(); ++i) {
    const Message& message = view.messages[i];
    if (i == 0 && has_system && spec_.system_in_user && message.role == Role::user) {
      const TurnPiece& piece = spec_.system.front();
      append(spec_.user, piece.before + system + piece.after + message.text, prompts, encoded[i]);
    } else if (!is_answer(message.role)) {
      append(format_of(message.role), message.text, prompts, encoded[i]);
    } else if (view.weighs && (view.weighing.schemes != nullptr || message.weight)) {
      append_answer(view, i, encoded[i]);
    } else if (message.role == Role::function) {
      append(spec_.function, content_of(message), nullptr, encoded[i]);
    } else {
      append(spec_.assistant, message.text, nullptr, encoded[i]);
    }
  }
  return encoded;
}

std::string ChatTemplate::without_thoughts(std::string_view text) const {
  std::string rest;
  std::size_t from = 0;
  while (const auto thought = find_block(text, spec_.thought_open, spec_.thought_close, from)) {
    rest.append(text.substr(from, thought->begin - from));
    from = thought->end;
  }
  rest.append(text.substr(from));
  rest.erase(0, std::min(rest.find_first_not_of('\n'), rest.size()));
  return rest;
}

bool ChatTemplate::lacks_thought(std::string_view text) const {
  return text.find(strip(spec_.thought_open)) == text.npos && text.find(strip(spec_.thought_close)) == text.npos;
}

bool ChatTemplate::learns_empty_thought(const Message& answer) const {
  return spec_.reasoning && options_.enable_thinking.value_or(false) && lacks_thought(answer.text);
}

void ChatTemplate::add_empty_thought(const Message& answer, std::vector<std::int32_t>& source,
                                     std::vector<std::int32_t>& target) const {
  if (!lacks_thought(answer.text)) return;
  if (learns_empty_thought(answer))
    target.insert(target.begin(), empty_thought_.begin(), empty_thought_.end());
  else
    source.insert(source.end(), empty_thought_.begin(), empty_thought_.end());
}

std::vector<Turn> ChatTemplate::encode_turns(const Conversation& conversation, bool last_thought_only,
                                             const TurnWeighing& weighing) const {
  std::vector<Message> messages = join(conversation.prompt, conversation.responses.front());
  QFT_ASSERT(messages.size() % 2 == 0, "a conversation of {} messages", messages.size());
  if (spec_.reasoning) {
    const bool remove_all_thoughts = options_.enable_thinking == std::optional<bool>(false);
    for (std::size_t i = 1; i < messages.size(); i += 2)
      if (remove_all_thoughts || (last_thought_only && i + 1 < messages.size()))
        messages[i].text = without_thoughts(messages[i].text);
  }
  const std::size_t first_thought = last_thought_only ? messages.size() - 1 : 0;
  std::vector<Tokens> encoded = encode({messages, conversation.system, conversation.tools, weighing, true, first_thought});
  std::vector<Turn> turns;
  for (std::size_t i = 0; i < encoded.size(); i += 2) {
    Tokens &source = encoded[i], &target = encoded[i + 1];
    const bool has_thought = !target.runs.empty() && learns_empty_thought(messages[i + 1]);  // append_answer() put it there
    if (spec_.reasoning && i + 1 >= first_thought && !has_thought) {
      add_empty_thought(messages[i + 1], source.ids, target.ids);
      if (!source.runs.empty())
        source.count_to_here(weighing.schemes->split(spec_.thought_open + spec_.thought_close, {}).front().weight);
    }
    turns.push_back({std::move(source.ids), std::move(target.ids), std::move(source.runs), std::move(target.runs)});
  }
  return turns;
}

Turn ChatTemplate::encode_answer(const Conversation& conversation, const Message& response) const {
  std::vector<Message> messages = join(conversation.prompt, response);
  if (spec_.reasoning) {
    if (!options_.preserve_thinking)
      for (std::size_t i = 1; i + 2 < messages.size(); i += 2) messages[i].text = without_thoughts(messages[i].text);
    if (options_.enable_thinking == std::optional<bool>(false)) messages.back().text = without_thoughts(messages.back().text);
  }
  std::vector<Tokens> encoded = encode({messages, conversation.system, conversation.tools});
  Turn turn;
  turn.target = std::move(encoded.back().ids);
  encoded.pop_back();
  for (const Tokens& part : encoded) turn.source.insert(turn.source.end(), part.ids.begin(), part.ids.end());
  if (spec_.reasoning) add_empty_thought(messages.back(), turn.source, turn.target);
  return turn;
}

std::vector<std::int32_t> ChatTemplate::render_prompt(std::span<const Message> messages, std::string_view system,
                                                      std::string_view tools) const {
  require(messages.size() % 2 == 1, "a prompt of {} messages: it must end with the user's turn", messages.size());
  for (std::size_t i = 0; i < messages.size(); ++i)
    require(is_answer(messages[i].role) == (i % 2 == 1),
            "message {} of the prompt is out of turn: users and observations alternate with answers and calls", i + 1);
  Conversation conversation;
  conversation.prompt.assign(messages.begin(), messages.end());
  conversation.system = system;
  conversation.tools = tools;
  return encode_answer(conversation, {Role::assistant, ""}).source;
}

std::vector<std::int32_t> ChatTemplate::stop_token_ids() const {
  std::vector<std::int32_t> ids;
  if (eos_id_) ids.push_back(*eos_id_);
  for (const std::string& word : spec_.stop_words) ids.push_back(*tokenizer_->token_to_id(word));
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

std::string ChatTemplate::document_end() const {
  if (!spec_.document_end.empty()) return spec_.document_end;
  if (!eos_id_) fail_config("stage pt ends each document with the tokenizer's end token, but the tokenizer names none");
  return tokenizer_->id_to_token(*eos_id_);
}

std::string ChatTemplate::hash() const {
  const int thinking = options_.enable_thinking ? *options_.enable_thinking : 2;
  return hash_hex(
      fmt::format("{} {} {}", spec_.hash(), spec_.reasoning ? thinking : 0, spec_.reasoning && options_.preserve_thinking));
}

}  // namespace qft::encode
