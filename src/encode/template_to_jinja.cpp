#include "qft/encode/template_to_jinja.h"

#include "qft/core/error.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "jinja_parts.h"
#include "thought.h"

namespace qft::encode {
namespace {

/// A turn's format as texts around the places of the message: one more text than places.
using TurnTexts = std::vector<std::string>;

TurnTexts turn_texts(const TurnFormat& format, const JinjaOptions& options) {
  TurnTexts texts(1);
  for (const TurnPiece& piece : format) {
    if (piece.kind != TurnPiece::Kind::text) {
      texts.back() += piece.kind == TurnPiece::Kind::bos ? options.bos : options.eos;
      continue;
    }
    texts.back() += piece.before;
    if (piece.has_content) texts.push_back(piece.after);
  }
  return texts;
}

std::string write_turn(const TurnTexts& texts, std::string_view variable) {
  std::string all;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    all += jinja_write(texts[i]);
    if (i + 1 < texts.size()) all += fmt::format("{{{{- {} -}}}}", variable);
  }
  return all;
}

/// If an answer's turn ends with the same text as a question's, the rest of the question's end requests the answer.
std::string split_off_request(TurnTexts& asking, const TurnTexts& answering) {
  const std::string& end = answering.back();
  std::string& last = asking.back();
  if (end.empty() || !last.starts_with(end) || last.size() == end.size()) return {};
  std::string request = last.substr(end.size());
  last.resize(end.size());
  return request;
}

constexpr const char* jinja_bool(bool value) {
  return value ? "true" : "false";
}

constexpr std::string_view kTextMacro = R"({%- macro text_of(content) -%}
  {%- if content is string -%}{{- content -}}
  {%- elif content is mapping -%}{{- content|tojson -}}
  {%- elif content is iterable -%}
    {%- for block in content -%}
      {%- if block is string -%}{{- block -}}
      {%- elif 'text' in block -%}{{- block['text'] -}}
      @BLOCKS@{%- else -%}{{- raise_exception('content holds a block without a text: this model was trained on text') -}}
      {%- endif -%}
    {%- endfor -%}
  {%- elif content is defined and content is not none -%}{{- content|string -}}
  {%- endif -%}
{%- endmacro -%}
)";

/// keep: thoughts stay; add: a missing thought becomes an empty one.
constexpr std::string_view kAnswerMacro = R"({%- macro answer_of(message, keep, add) -%}
  {%- set body = text_of(message['content']) -%}
  {%- set thought = message['reasoning_content'] or message['reasoning'] or message['thinking'] or '' -%}
  {%- if thought is string and thought -%}
    {%- set body = @OPEN@ + thought.strip('\n') + @CLOSE@ + body.lstrip('\n') -%}
  {%- endif -%}
  {%- if not keep and @CLOSE_WORD@ in body -%}{%- set body = body.split(@CLOSE_WORD@)[-1].lstrip('\n') -%}{%- endif -%}
  {%- if add and @OPEN_WORD@ not in body and @CLOSE_WORD@ not in body -%}{%- set body = @OPEN@ + @CLOSE@ + body -%}{%- endif -%}
  {{- body -}}
{%- endmacro -%}
)";

constexpr std::string_view kStart = R"({%- set leads = messages|length > 0 and messages[0]['role'] in ['system', 'developer'] -%}
{%- set turns = messages[1:] if leads else messages -%}
{%- set system = text_of(messages[0]['content']) if leads else '' -%}
{%- if not system -%}{%- set system = @DEFAULT_SYSTEM@ -%}{%- endif -%}
{%- set has_system = system or tools -%}
{%- if tools -%}{%- set system = system + describe_tools(tools) -%}{%- endif -%}
@THINKING@{%- set ns = namespace(text='', calls=false, last_user=-1) -%}
{%- for message in turns -%}{%- if message['role'] == 'user' -%}{%- set ns.last_user = loop.index0 -%}{%- endif -%}{%- endfor -%}
@PREFIX@@SYSTEM@)";

constexpr std::string_view kTurns = R"({%- for message in turns -%}
  {%- set before = '' if loop.first else turns[loop.index0 - 1]['role'] -%}
  {%- set after = '' if loop.last else turns[loop.index0 + 1]['role'] -%}
  {%- set asks = after == 'assistant' or (loop.last and add_generation_prompt) -%}
  {%- if message['role'] == 'user' -%}
    {%- set content = text_of(message['content']) -%}
    @SYSTEM_IN_USER@@USER@
  {%- elif message['role'] == 'tool' -%}
    {%- set content = text_of(message['content']) -%}
    {%- set ns.text = content if before != 'tool' else ns.text + @SEPARATOR@ + content -%}
    {%- if after != 'tool' -%}@OBSERVATION@{%- endif -%}
  {%- elif message['role'] == 'assistant' -%}
    {%- set part = answer_of(message, @KEEP@, @ADD@) -%}
    {%- set calls = message['tool_calls'] or ([message['function_call']] if message['function_call'] else []) -%}
    {%- if before != 'assistant' -%}{%- set ns.text = '' -%}{%- set ns.calls = false -%}{%- endif -%}
    {%- set ns.text = ns.text + ('\n' if ns.text and part and ns.text[-1:] != '\n' else '') + part -%}
    {%- if calls -%}
      {%- set ns.calls = true -%}
      {%- set ns.text = ns.text + ('\n' if ns.text and ns.text[-1:] != '\n' else '') + write_calls(calls) -%}
    {%- endif -%}
    {%- if after != 'assistant' -%}
      {%- if ns.calls -%}@FUNCTION@{%- else -%}@ASSISTANT@{%- endif -%}
    {%- endif -%}
  {%- else -%}
    {{- raise_exception('a message has the role ' + message['role'] + ': system comes first, then user, assistant and tool') -}}
  {%- endif -%}
{%- endfor -%}
@END@)";

/// Replaces each @NAME@ by its text.
std::string filled(std::string_view text, const std::vector<std::pair<std::string_view, std::string>>& values) {
  std::string all;
  while (!text.empty()) {
    const std::size_t at = text.find('@'), close = at == text.npos ? at : text.find('@', at + 1);
    all += text.substr(0, at);
    if (close == text.npos) break;
    const std::string_view name = text.substr(at + 1, close - at - 1);
    const auto value = std::ranges::find(values, name, [](const auto& entry) { return entry.first; });
    QFT_ASSERT(value != values.end(), "a template names '{}'", name);
    all += value->second;
    text.remove_prefix(close + 1);
  }
  return all;
}

std::string vision_blocks(const JinjaOptions& options) {
  std::string text;
  for (const auto& [kind, mark] : {std::pair{"image", &options.image}, {"video", &options.video}})
    if (!mark->empty())
      text += fmt::format("{{%- elif '{0}' in block or '{0}_url' in block or block['type'] == '{0}' -%}}{1}\n      ", kind,
                          jinja_write(*mark));
  return text;
}

/// Writes a question's turn, and the request for an answer if one follows.
std::string write_asking(TurnTexts texts, const TurnTexts& answering, std::string_view variable) {
  const std::string request = split_off_request(texts, answering);
  std::string text = write_turn(texts, variable);
  if (!request.empty()) text += fmt::format("{{%- if asks -%}}{}{{%- endif -%}}", jinja_write(request));
  return text;
}

std::string start_of(const TemplateSpec& spec, const JinjaOptions& options) {
  const std::string thinking = fmt::format("{{%- set thinking = enable_thinking if enable_thinking is defined else {} -%}}\n",
                                           options.enable_thinking ? jinja_bool(*options.enable_thinking) : "none");
  const std::string system =
      fmt::format("{{%- if has_system -%}}{}{{%- endif -%}}\n", write_turn(turn_texts(spec.system, options), "system"));
  return filled(kStart, {{"DEFAULT_SYSTEM", jinja_literal(spec.default_system)},
                         {"THINKING", spec.reasoning ? thinking : ""},
                         {"PREFIX", write_turn(turn_texts(spec.prefix, options), "")},
                         {"SYSTEM", spec.system_in_user ? "\n" : system}});
}

/// In training, answers lose their thoughts if thinking is off, and earlier answers also with last_thought_only. In a prompt,
/// earlier answers lose their thoughts unless preserved, and get no empty ones.
std::string turns_of(const TemplateSpec& spec, const JinjaOptions& options) {
  // Separates the results of parallel calls.
  constexpr std::string_view kSeparator = "\n</tool_response>\n<tool_response>\n";
  const TurnTexts answer = turn_texts(spec.assistant, options);
  const bool last_only = options.last_thought_only && !options.preserve_thinking;
  const std::string earlier = options.preserve_thinking ? "false"
                              : last_only               ? "loop.index0 < ns.last_user"
                                                        : "(add_generation_prompt and loop.index0 < ns.last_user)";
  std::string in_user, end;
  if (spec.system_in_user) {
    const TurnTexts system = turn_texts(spec.system, options);
    in_user = fmt::format(
        "{{%- if loop.first and has_system -%}}{{%- set content = {} + system + {} + content -%}}{{%- endif -%}}\n    ",
        jinja_literal(system.front()), jinja_literal(system.back()));
  }
  if (spec.efficient_eos)
    end += fmt::format("{{%- if turns|length > 0 and turns[-1]['role'] == 'assistant' -%}}{}{{%- endif -%}}",
                       jinja_write(options.eos));
  if (spec.reasoning)
    end += fmt::format(
        "{{%- if add_generation_prompt and not thinking and turns|length > 0 and turns[-1]['role'] != 'assistant' -%}}"
        "{}{{%- endif -%}}",
        jinja_write(spec.thought_open + spec.thought_close));
  const std::string keep = fmt::format("thinking or thinking is none) and not {}", earlier);
  return filled(kTurns, {{"SYSTEM_IN_USER", in_user},
                         {"USER", write_asking(turn_texts(spec.user, options), answer, "content")},
                         {"SEPARATOR", jinja_literal(kSeparator)},
                         {"OBSERVATION", write_asking(turn_texts(spec.observation, options), answer, "ns.text")},
                         {"FUNCTION", write_turn(turn_texts(spec.function, options), "ns.text")},
                         {"ASSISTANT", write_turn(answer, "ns.text")},
                         {"KEEP", spec.reasoning ? "(" + keep : "true"},
                         {"ADD", !spec.reasoning ? "false"
                                 : last_only     ? "not add_generation_prompt and loop.last"
                                                 : "not add_generation_prompt"},
                         {"END", end}});
}

}  // namespace

std::string jinja_literal(std::string_view text) {
  std::string literal = "'";
  for (const char c : text) {
    if (c == '\\' || c == '\'')
      literal.append(1, '\\').append(1, c);
    else if (c == '\n')
      literal += "\\n";
    else if (c == '\r')
      literal += "\\r";
    else if (c == '\t')
      literal += "\\t";
    else
      literal += c;
  }
  return literal + "'";
}

std::string jinja_write(std::string_view text) {
  return text.empty() ? std::string() : fmt::format("{{{{- {} -}}}}", jinja_literal(text));
}

std::string to_jinja(const TemplateSpec& spec, const JinjaOptions& options) {
  std::string text = fmt::format("{{#- template '{}' of qft -#}}\n", spec.name);
  text += filled(kTextMacro, {{"BLOCKS", vision_blocks(options)}});
  text += jinja_tool_macros(find_tool_format(spec.tool_format));
  text += filled(kAnswerMacro, {{"OPEN", jinja_literal(spec.thought_open)},
                                {"CLOSE", jinja_literal(spec.thought_close)},
                                {"OPEN_WORD", jinja_literal(stripped(spec.thought_open))},
                                {"CLOSE_WORD", jinja_literal(stripped(spec.thought_close))}});
  return text + start_of(spec, options) + turns_of(spec, options);
}

std::optional<std::string> end_of_answer(const TemplateSpec& spec, const std::string& eos) {
  const std::string after = turn_texts(spec.assistant, {.eos = eos}).back();
  std::optional<std::string> end;
  std::size_t first = after.npos;
  const auto consider = [&](const std::string& word) {
    if (const std::size_t at = word.empty() ? after.npos : after.find(word); at < first) first = at, end = word;
  };
  consider(eos);
  for (const std::string& word : spec.stop_words) consider(word);
  if (!end && spec.efficient_eos && !eos.empty()) end = eos;
  return end;
}

}  // namespace qft::encode
