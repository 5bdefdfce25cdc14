// Checks that a text rendered by a chat template shows every part of the conversation. An omitted part would be lost silently.
// Also excerpts of such texts for messages, cut between characters and quoted as JSON.
#pragma once

#include "qft/encode/conversation.h"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace qft::encode {

/// `text` is the learned part of answer `number` (from 0). `has_thought`: it must contain the thought too. Throws Error that
/// names the missing part.
void require_answer_shown(std::string_view text, const Message& answer, std::size_t number, bool has_thought);

/// `text` is everything before an answer: `messages` with the system message and the tools. Thoughts of earlier answers may be
/// missing, and without `with_answers` their texts too: in a chat the template decides how much of an answer it keeps. Throws
/// Error that names the missing part.
void require_prompt_shown(std::string_view text, std::string_view system, const Json& tools, std::span<const Message> messages,
                          bool with_answers);

struct Excerpt {
  std::string quoted;
  bool cut_before = false, cut_after = false;  // text was cut at this end
};

/// Returns up to `before` bytes before byte `at` of a text and up to `behind` bytes after it, extended to whole characters.
Excerpt excerpt_around(std::string_view text, std::size_t at, std::size_t before, std::size_t behind);

/// Returns the first byte at which two texts differ; the shorter one's size if it is a prefix of the other.
std::size_t first_mismatch(std::string_view a, std::string_view b);

}  // namespace qft::encode
