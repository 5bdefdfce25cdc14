// Splits the thought off an answer, as Qwen's chat templates do.
#pragma once

#include <optional>
#include <string_view>

namespace qft::encode {

/// Marks of thoughts in texts, and keys that hold a thought separately.
inline constexpr std::string_view kThinkOpen = "<think>", kThinkClose = "</think>";
inline constexpr std::string_view kThoughtKeys[] = {"reasoning_content", "reasoning", "thinking"};

/// Strips the characters in `blank` from both ends.
std::string_view stripped(std::string_view text, std::string_view blank = " \n\r\t\v\f");

struct ThoughtAndText {
  std::string_view thought;  // without line feeds at its ends; empty: the thought is blank
  std::string_view text;     // after the closing mark, without leading line feeds
};

/// `open` and `close` are the marks without surrounding blanks ("<think>", "</think>"). The opening mark may be missing; text
/// before it is not part of the thought. Returns nothing if there is no closing mark.
std::optional<ThoughtAndText> split_thought(std::string_view text, std::string_view open, std::string_view close);

}  // namespace qft::encode
