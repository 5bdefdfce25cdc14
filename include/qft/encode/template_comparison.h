// A run's template beside the chat template that comes with its model.
#pragma once

#include "qft/encode/chat_template.h"
#include "qft/encode/dataset_info.h"

#include <optional>
#include <string>
#include <vector>

namespace qft::encode {

/// The first place in which two templates show one conversation differently.
struct TemplateDifference {
  std::string first, second;  // the text of each around that place, in quotes as JSON; or why the second shows nothing
};
/// Nothing where both show the same text, or the first refuses the conversation. The last answer is the conversation's own.
std::optional<TemplateDifference> first_difference(const ChatTemplate& first, const ChatTemplate& second,
                                                   const Conversation& conversation);

/// Renders the first records of each dataset by `named`, the run's template, and by the model's own. Lines for the log about the
/// first difference: the place, and a line for each side; none where there is no difference, or nothing to compare with; why
/// nothing is compared where a file is broken. Not collective, and throws nothing.
std::vector<std::string> compare_with_own(const config::RunConfig& config, const ChatTemplate& named,
                                          const std::vector<DatasetSpec>& specs);
/// The same for a configuration alone. Throws Error where its template, tokenizer or datasets cannot be read.
std::vector<std::string> compare_with_own(const config::RunConfig& config);

}  // namespace qft::encode
