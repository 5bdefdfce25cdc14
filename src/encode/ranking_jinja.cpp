#include "qft/core/error.h"
#include "qft/encode/template_to_jinja.h"

#include "jinja_parts.h"

namespace qft::encode {
namespace {

constexpr std::string_view kText = "(m['content'] if m['content'] is string else m['content'][0]['text'])";

/// The question as an expression: the form with its parts in place of {{instruction}}, {{query}} and {{document}}.
std::string question_of(std::string_view form) {
  std::string expression = "''";
  while (!form.empty()) {
    const std::size_t open = form.find("{{"), close = open == form.npos ? form.npos : form.find("}}", open);
    const std::string_view before = close == form.npos ? form : form.substr(0, open);
    if (!before.empty()) expression += " + " + jinja_literal(before);
    if (close == form.npos) break;
    expression += fmt::format(" + ns.{}", form.substr(open + 2, close - open - 2));
    form.remove_prefix(close + 2);
  }
  return expression;
}

}  // namespace

std::string ranking_jinja(const TemplateSpec& spec, const std::string& conversation) {
  std::string lead;
  if (spec.ranking.empty()) {
    lead = fmt::format(
        "{{%- set ns = namespace(turns=[]) -%}}{{%- for m in messages -%}}"
        "{{%- set role = 'user' if m['role'] == 'query' else 'assistant' if m['role'] == 'document' else m['role'] -%}}"
        "{{%- set ns.turns = ns.turns + [{{'role': role, 'content': {}}}] -%}}{{%- endfor -%}}"
        "{{%- set messages = ns.turns -%}}",
        kText);
  } else {
    lead = fmt::format(
        "{{%- set ns = namespace(instruction={}, query='', document='') -%}}{{%- for m in messages -%}}"
        "{{%- if m['role'] == 'system' -%}}{{%- set ns.instruction = {} -%}}"
        "{{%- elif m['role'] in ['query', 'user'] -%}}{{%- set ns.query = {} -%}}"
        "{{%- else -%}}{{%- set ns.document = {} -%}}{{%- endif -%}}{{%- endfor -%}}"
        "{{%- set messages = [{{'role': 'user', 'content': {}}}] -%}}{{%- set add_generation_prompt = true -%}}",
        jinja_literal(spec.instruction), kText, kText, kText, question_of(spec.ranking));
  }
  lead.replace(lead.size() - std::string_view(" -%}").size(), std::string::npos, " %}\n");  // trim_blocks removes the line feed
  return lead + conversation;
}

}  // namespace qft::encode
