#include "tool_format.h"

#include "qft/core/error.h"

#include <array>

namespace qft::encode {
namespace {

// The prompts that the models were trained with: Qwen's chat template, Meta's Llama 3.1 prompt format, and LLaMA-Factory's
// default for models without a tool format.
constexpr std::string_view kQwenPrompt =
    "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>{tools}\n</tools>\n\n"
    "For each function call, return a json object with function name and arguments within "
    "<tool_call></tool_call> XML tags:\n<tool_call>\n"
    "{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>";

// The default date of Meta's template; the day of packing would make packs differ.
constexpr std::string_view kLlama3Prompt =
    "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"
    "You have access to the following functions. To call a function, please respond with JSON for a function call. "
    "Respond in the format {\"name\": function name, \"parameters\": dictionary of argument name and its value}. "
    "Do not use variables.\n\n{tools}";

constexpr std::string_view kMistralPrompt = "[AVAILABLE_TOOLS] [{tools}][/AVAILABLE_TOOLS]";

constexpr std::string_view kQwen35Prompt =
    "\n\n# Tools\n\nYou have access to the following functions:\n\n<tools>{tools}\n</tools>\n\n"
    "If you choose to call a function ONLY reply in the following format with NO suffix:\n\n"
    "<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n</parameter>\n"
    "<parameter=example_parameter_2>\nThis is the value for the second parameter\nthat can span\n"
    "multiple lines\n</parameter>\n</function>\n</tool_call>\n\n<IMPORTANT>\nReminder:\n"
    "- Function calls MUST follow the specified format: an inner <function=...></function> block must be "
    "nested within <tool_call></tool_call> XML tags\n"
    "- Required parameters MUST be specified\n"
    "- You may provide optional reasoning for your function call in natural language BEFORE the function call, but NOT after\n"
    "- If there is no function call available, answer the question like normal with your current knowledge "
    "and do not tell the user about function calls\n</IMPORTANT>";

constexpr std::string_view kDefaultPrompt =
    "You have access to the following tools:\n{tools}Use the following format if using a tool:\n```\n"
    "Action: tool name (one of [{names}])\n"
    "Action Input: the input to the tool, in a JSON format representing the kwargs "
    "(e.g. ```{\"input\": \"hello world\", \"num_beams\": 5}```)\n```\n";

const Json& required_member(const Json& object, const char* key) {
  if (!object.is_object() || !object.contains(key)) fail("a tool's description has no '{}'", key);
  return object[key];
}

// Returns a text unchanged, other values as JSON.
std::string json_text(const Json& value) {
  return value.is_string() ? value.get<std::string>() : dump_python_json(value);
}

std::string member_text(const Json& object, const char* key) {
  return object.is_object() && object.contains(key) ? json_text(object[key]) : std::string();
}

bool is_wrapped(const Json& tool) {
  return tool.is_object() && tool.contains("type") && tool["type"] == "function" && tool.contains("function");
}

Json wrapped(const Json& tool) {
  if (tool.is_object() && tool.contains("type") && tool["type"] == "function") return tool;
  Json outer = Json::object();
  outer["type"] = "function";
  outer["function"] = tool;
  return outer;
}

std::string describe_qwen(const Json& tool) {
  return fmt::format("\n{}", dump_python_json(wrapped(tool)));
}

std::string describe_llama3(const Json& tool) {
  return dump_python_json(wrapped(tool), 4) + "\n\n";
}

std::string describe_mistral(const Json& tool) {
  return dump_python_json(wrapped(tool));
}

std::string describe_qwen35(const Json& tool) {
  return fmt::format("\n{}", dump_python_json(is_wrapped(tool) ? tool["function"] : tool));
}

std::string join(const Json& texts) {
  std::string joined;
  for (const Json& text : texts) joined += (joined.empty() ? "" : ", ") + json_text(text);
  return joined;
}

std::string describe_parameter(const std::string& name, const Json& parameter, const Json& required) {
  std::string line = fmt::format("  - {} ({}", name, member_text(parameter, "type"));
  for (const Json& needed : required)
    if (needed == name) {
      line += ", required";
      break;
    }
  line += "): " + member_text(parameter, "description");
  if (parameter.is_object() && parameter.contains("enum") && !parameter["enum"].empty())
    line += fmt::format(", should be one of [{}]", join(parameter["enum"]));
  if (parameter.is_object() && parameter.contains("items") && !parameter["items"].empty())
    line += fmt::format(", where each item should be {}", member_text(parameter["items"], "type"));
  return line + "\n";
}

std::string describe_default(const Json& outer) {
  const Json& tool = is_wrapped(outer) ? outer["function"] : outer;
  const Json& parameters = required_member(tool, "parameters");
  const Json required = parameters.contains("required") ? parameters["required"] : Json::array();
  std::string text = fmt::format("> Tool Name: {}\nTool Description: {}\nTool Args:\n", json_text(required_member(tool, "name")),
                                 member_text(tool, "description"));
  for (const auto& [name, parameter] : required_member(parameters, "properties").items())
    text += describe_parameter(name, parameter, required);
  return text + "\n";
}

Json call_object(const Call& call, const char* arguments) {
  return {{"name", call.name}, {arguments, call.arguments}};
}

std::string write_qwen(const std::vector<Call>& calls) {
  std::string text;
  for (const Call& call : calls)
    text += fmt::format("{}<tool_call>\n{}\n</tool_call>", text.empty() ? "" : "\n",
                        dump_python_json(call_object(call, "arguments")));
  return text;
}

std::string write_mistral(const std::vector<Call>& calls) {
  Json list = Json::array();
  for (const Call& call : calls) list.push_back(call_object(call, "arguments"));
  return dump_python_json(list);
}

std::string write_qwen35(const std::vector<Call>& calls) {
  std::string text;
  for (const Call& call : calls) {
    text += fmt::format("{}<tool_call>\n<function={}>", text.empty() ? "" : "\n", call.name);
    for (const auto& [key, value] : call.arguments.items())
      text += fmt::format("\n<parameter={}>\n{}\n</parameter>", key, json_text(value));
    text += "\n</function>\n</tool_call>";
  }
  return text;
}

std::string write_llama3(const std::vector<Call>& calls) {
  Json list = Json::array();
  for (const Call& call : calls) list.push_back(call_object(call, "parameters"));
  return dump_python_json(list.size() == 1 ? list[0] : list);
}

std::string write_default(const std::vector<Call>& calls) {
  std::string text;
  for (const Call& call : calls)
    text += fmt::format("{}Action: {}\nAction Input: {}", text.empty() ? "" : "\n", call.name, dump_python_json(call.arguments));
  return text;
}

constexpr std::array<ToolFormat, 5> kFormats{{
    {"default", kDefaultPrompt, "", "\n", describe_default, write_default},
    {"llama3", kLlama3Prompt, "", "\n", describe_llama3, write_llama3},
    {"mistral", kMistralPrompt, ", ", "\n", describe_mistral, write_mistral},
    {"qwen", kQwenPrompt, "", "\n", describe_qwen, write_qwen},
    {"qwen3_5", kQwen35Prompt, "", "\n\n", describe_qwen35, write_qwen35},
}};

void replace(std::string& text, std::string_view mark, std::string_view value) {
  if (const std::size_t at = text.find(mark); at != text.npos) text.replace(at, mark.size(), value);
}

}  // namespace

std::string ToolFormat::describe_tools(const Json& tools) const {
  if (tools.empty()) return {};
  std::string texts, names;
  for (const Json& tool : tools) {
    texts += (texts.empty() ? std::string_view() : separator);
    texts += describe(tool);
    const Json& inner = is_wrapped(tool) ? tool["function"] : tool;
    names += (names.empty() ? "" : ", ") + member_text(inner, "name");
  }
  std::string text(prompt);
  replace(text, "{names}", names);  // before {tools}, because tool texts may contain anything
  replace(text, "{tools}", texts);
  return text;
}

std::string ToolFormat::description() const {
  return fmt::format("{}\n{}", name, prompt);
}

const ToolFormat& find_tool_format(std::string_view name) {
  std::string known;
  for (const ToolFormat& format : kFormats) {
    if (format.name == name) return format;
    known += (known.empty() ? "" : ", ") + std::string(format.name);
  }
  fail_config("tool_format: there is no '{}'; the formats are {}", name, known);
}

}  // namespace qft::encode
