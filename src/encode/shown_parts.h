// Checks that a text which a chat template rendered shows every part of the conversation: a part that it leaves out would be
// lost without a word.
#pragma once

#include "qft/encode/conversation.h"

#include <cstddef>
#include <span>
#include <string_view>

namespace qft::encode {

/// `text` is all that is learned of answer `number` (from 0). `has_thought`: a thought must be in it, too. Throws Error that
/// names the part.
void require_answer_shown(std::string_view text, const Message& answer, std::size_t number, bool has_thought);

/// `text` is all in front of an answer: of `messages`, with the system message and the tools. Of earlier answers their thoughts
/// may be left out, and without `with_answers` their texts too: in a chat the template decides how much of an answer it keeps.
/// Throws Error that names the part.
void require_prompt_shown(std::string_view text, std::string_view system, const Json& tools, std::span<const Message> messages,
                          bool with_answers);

}  // namespace qft::encode
