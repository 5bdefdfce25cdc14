// Decides whether two chat templates are equivalent for their users.
#pragma once

#include "qft/core/python_json.h"

#include <string>
#include <vector>

namespace qft::encode {

/// Conversations that tell templates apart, as template variables: with and without a system message, several turns, thoughts,
/// tools, calls and results; each as a prompt and with its answer.
std::vector<Json> template_probes();

/// Whether the Jinja templates `a` and `b` render the same text for all probes, or refuse the same ones. `tokens` are further
/// variables, such as eos_token. False if the texts differ and one cannot be parsed.
bool render_alike(const std::string& a, const std::string& b, const Json& tokens = Json::object());

}  // namespace qft::encode
