// Compares a run's template with the chat template that comes with its model.
#pragma once

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

}  // namespace qft::encode
