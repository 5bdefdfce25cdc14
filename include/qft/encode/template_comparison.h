// Compares a run's template with the chat template that comes with its model, and decides whether two templates are equivalent
// for their users.
#pragma once

#include "qft/core/python_json.h"
#include "qft/encode/chat_template.h"
#include "qft/encode/dataset_info.h"

#include <optional>
#include <string>
#include <vector>

namespace qft::encode {

/// The first place at which two templates show one conversation differently.
struct TemplateDifference {
  std::string first, second;  // each template's text around that place, in quotes as JSON; or why the second shows nothing
};
/// Returns nothing if both show the same text or the first refuses the conversation. Uses the conversation's answer as the last
/// answer.
std::optional<TemplateDifference> first_difference(const ChatTemplate& first, const ChatTemplate& second,
                                                   const Conversation& conversation);

/// Renders the first records of each dataset with `named`, the run's template, and with the model's own template. Returns log
/// lines about the first difference: the place, and a line for each side. Empty if there is no difference or nothing to compare
/// with; says why nothing is compared if a file is broken. Not collective; throws nothing.
std::vector<std::string> compare_with_own(const config::RunConfig& config, const ChatTemplate& named,
                                          const std::vector<DatasetSpec>& specs);
/// Does the same for a configuration. Throws Error if its template, tokenizer or datasets cannot be read.
std::vector<std::string> compare_with_own(const config::RunConfig& config);

/// Conversations that tell templates apart, as template variables: with and without a system message, several turns, thoughts,
/// tools, calls and results; each as a prompt and with its answer.
std::vector<Json> template_probes();

/// Whether the Jinja templates `a` and `b` render the same text for all probes, or refuse the same ones. `tokens` are further
/// variables, such as eos_token. False if the texts differ and one cannot be parsed.
bool render_alike(const std::string& a, const std::string& b, const Json& tokens = Json::object());

}  // namespace qft::encode
