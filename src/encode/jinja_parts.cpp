#include "jinja_parts.h"

#include "qft/core/error.h"

#include <array>

#include <fmt/ranges.h>

namespace qft::encode {
namespace {

/// Jinja for one tool format (tool_format.cpp), with the same texts for the same tools and calls: a tool's text in {tools}, and a
/// call's text. `tool` and `call` are the loop variables, `inner` is a tool without its wrapper, `outer` a tool with it.
struct FormatTexts {
  std::string_view name, tool, call;
  std::string_view before_calls = {}, between_calls = {}, after_calls = {};  ///< expressions
};

constexpr std::string_view kWrappedTool = "{{- '\\n' -}}{{- outer|tojson -}}";
constexpr std::string_view kBareTool = "{{- '\\n' -}}{{- inner|tojson -}}";
constexpr std::string_view kIndentedTool = "{{- outer|tojson(indent=4) -}}{{- '\\n\\n' -}}";
constexpr std::string_view kListedTool = "{{- outer|tojson -}}";
constexpr std::string_view kDescribedTool = R"(
    {{- '> Tool Name: ' -}}{{- text_or_json(inner['name']) -}}
    {{- '\nTool Description: ' -}}{{- text_or_json(inner['description']) -}}{{- '\nTool Args:\n' -}}
    {%- set parameters = inner['parameters'] -%}
    {%- for name, parameter in parameters['properties']|items -%}
      {{- '  - ' -}}{{- name -}}{{- ' (' -}}{{- text_or_json(parameter['type']) -}}
      {%- if parameters['required'] and name in parameters['required'] -%}{{- ', required' -}}{%- endif -%}
      {{- '): ' -}}{{- text_or_json(parameter['description']) -}}
      {%- if parameter['enum'] -%}
        {{- ', should be one of [' -}}
        {%- for value in parameter['enum'] -%}{{- '' if loop.first else ', ' -}}{{- text_or_json(value) -}}{%- endfor -%}
        {{- ']' -}}
      {%- endif -%}
      {%- if 'items' in parameter and parameter['items'] -%}
        {{- ', where each item should be ' -}}{{- text_or_json(parameter['items']['type']) -}}
      {%- endif -%}
      {{- '\n' -}}
    {%- endfor -%}
    {{- '\n' -}})";

constexpr std::string_view kTaggedCall =
    R"({{- '<tool_call>\n{"name": ' -}}{{- call['name']|tojson -}}{{- ', "arguments": ' -}}{{- json_of(call['arguments']) -}}{{- '}\n</tool_call>' -}})";
constexpr std::string_view kListedCall =
    R"({{- '{"name": ' -}}{{- call['name']|tojson -}}{{- ', "arguments": ' -}}{{- json_of(call['arguments']) -}}{{- '}' -}})";
constexpr std::string_view kParametersCall =
    R"({{- '{"name": ' -}}{{- call['name']|tojson -}}{{- ', "parameters": ' -}}{{- json_of(call['arguments']) -}}{{- '}' -}})";
constexpr std::string_view kActionCall =
    R"({{- 'Action: ' -}}{{- call['name'] -}}{{- '\nAction Input: ' -}}{{- json_of(call['arguments']) -}})";
constexpr std::string_view kXmlCall = R"(
    {{- '<tool_call>\n<function=' -}}{{- call['name'] -}}{{- '>' -}}
    {%- if call['arguments'] is mapping -%}
      {%- for key, value in call['arguments']|items -%}
        {{- '\n<parameter=' -}}{{- key -}}{{- '>\n' -}}{{- text_or_json(value) -}}{{- '\n</parameter>' -}}
      {%- endfor -%}
    {%- elif call['arguments'] and call['arguments']|trim not in ['', '{}', 'null'] -%}
      {{- raise_exception('the arguments of a call must be an object in this format, not its JSON as a text') -}}
    {%- endif -%}
    {{- '\n</function>\n</tool_call>' -}})";

constexpr std::array<FormatTexts, 5> kFormatTexts{{
    {"default", kDescribedTool, kActionCall, "''", "'\\n'", "''"},
    {"llama3", kIndentedTool, kParametersCall, "'[' if calls|length > 1 else ''", "', '", "']' if calls|length > 1 else ''"},
    {"mistral", kListedTool, kListedCall, "'['", "', '", "']'"},
    {"qwen", kWrappedTool, kTaggedCall, "''", "'\\n'", "''"},
    {"qwen3_5", kBareTool, kXmlCall, "''", "'\\n'", "''"},
}};

const FormatTexts& format_texts(const ToolFormat& format) {
  for (const FormatTexts& texts : kFormatTexts)
    if (texts.name == format.name) return texts;
  fail("tool_format '{}' has no Jinja template: its row of texts is missing", format.name);
}

/// Macros for values in place of a tool's or parameter's text, and for arguments.
constexpr std::string_view kValueMacros = R"({%- macro text_or_json(value) -%}
  {%- if value is string -%}{{- value -}}{%- elif value is defined -%}{{- value|tojson -}}{%- endif -%}
{%- endmacro -%}
{%- macro json_of(arguments) -%}
  {%- if arguments is string -%}{{- arguments if arguments|trim else '{}' -}}
  {%- elif arguments is mapping -%}{{- arguments|tojson -}}{%- else -%}{{- '{}' -}}{%- endif -%}
{%- endmacro -%}
)";

constexpr std::string_view kToolLoop = R"({%- for tool in tools -%}
    {%- set wrapped = tool['type'] == 'function' and tool['function'] -%}
    {%- set inner = tool['function'] if wrapped else tool -%}
    {%- set outer = tool if tool['type'] == 'function' else {'type': 'function', 'function': tool} -%}
    )";

/// Returns the format's prompt with loops in place of {tools} and {names}.
std::string describing(const ToolFormat& format, const FormatTexts& texts) {
  std::string text;
  std::string_view rest = format.prompt;
  while (!rest.empty()) {
    const std::size_t tools = rest.find("{tools}"), names = rest.find("{names}"), at = std::min(tools, names);
    text += jinja_write(rest.substr(0, at));
    if (at == rest.npos) break;
    text += fmt::format("{}{}{{%- endfor -%}}\n  ", kToolLoop,
                        at == names
                            ? std::string("{{- '' if loop.first else ', ' -}}{{- text_or_json(inner['name']) -}}")
                            : fmt::format("{{{{- '' if loop.first else {} -}}}}{}", jinja_literal(format.separator), texts.tool));
    rest.remove_prefix(at + 7);
  }
  return text;
}

std::string literal_of(const Json& value) {
  if (value.is_null()) return "none";
  if (value.is_string()) return jinja_literal(value.get_ref<const std::string&>());
  if (!value.is_structured()) return dump_python_json(value);
  std::vector<std::string> parts;
  for (const auto& [name, each] : value.items())
    parts.push_back(value.is_object() ? fmt::format("{}: {}", jinja_literal(name), literal_of(each)) : literal_of(each));
  return value.is_object() ? fmt::format("{{{}}}", fmt::join(parts, ", ")) : fmt::format("[{}]", fmt::join(parts, ", "));
}

}  // namespace

std::string jinja_tool_macros(const ToolFormat& format) {
  const FormatTexts& texts = format_texts(format);
  std::string text(kValueMacros);
  text += fmt::format("{{%- macro describe_tools(tools) -%}}\n  {}\n{{%- endmacro -%}}\n", describing(format, texts));
  text += fmt::format(
      "{{%- macro write_calls(calls) -%}}\n  {{{{- {} -}}}}\n  {{%- for item in calls -%}}\n"
      "    {{%- set call = item['function'] if item['function'] else item -%}}\n"
      "    {{{{- '' if loop.first else {} -}}}}{}\n  {{%- endfor -%}}\n  {{{{- {} -}}}}\n{{%- endmacro -%}}\n",
      texts.before_calls, texts.between_calls, texts.call, texts.after_calls);
  return text;
}

std::string with_defaults(const std::string& jinja, const TemplateOptions& options) {
  std::string statements;
  for (const auto& [name, value] : options.variables.items()) {
    // transformers always passes documents and the tokenizer's special tokens.
    const std::string is_missing = name == "documents"        ? "not documents"
                                   : name.ends_with("_token") ? "true"
                                                              : name + " is not defined";
    statements += fmt::format("{{%- if {} -%}}{{%- set {} = {} -%}}{{%- endif -%}}", is_missing, name, literal_of(value));
  }
  if (options.default_system && !options.default_system->empty())
    statements += fmt::format(
        "{{%- if messages and messages[0]['role'] not in ['system', 'developer'] -%}}{{%- set messages = [{{'role': 'system', "
        "'content': {}}}] + messages -%}}{{%- endif -%}}",
        jinja_literal(*options.default_system));
  if (statements.empty()) return jinja;
  // trim_blocks removes this line feed, so that the template still begins a line.
  statements.replace(statements.size() - std::string_view(" -%}").size(), std::string::npos, " %}\n");
  return statements + jinja;
}

}  // namespace qft::encode
