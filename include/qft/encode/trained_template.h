// Whether two chat templates are one to those who use them.
#pragma once

#include "qft/core/python_json.h"

#include <string>
#include <vector>

namespace qft::encode {

/// Conversations by which templates are told apart, as a template's variables: with and without a system message, several turns,
/// thoughts, tools, calls and results; each as a prompt, and with its answer.
std::vector<Json> template_probes();

/// Whether `a` and `b`, in Jinja, render the same text for all of these, or refuse the same ones. `tokens` are further variables,
/// such as eos_token. False where one of two different texts cannot be parsed.
bool render_alike(const std::string& a, const std::string& b, const Json& tokens = Json::object());

}  // namespace qft::encode
