#include "template_defaults.h"

#include "jinja_parts.h"
#include <fmt/ranges.h>

namespace qft::encode {
namespace {

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
