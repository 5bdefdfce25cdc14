// The thought in front of an answer, as Qwen's chat templates tell it from the answer's text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace qft::encode {

/// The marks of thoughts in texts, and the keys that hold a thought apart from an answer's text.
inline constexpr std::string_view kThinkOpen = "<think>", kThinkClose = "</think>";
inline constexpr std::string_view kThoughtKeys[] = {"reasoning_content", "reasoning", "thinking"};

/// Without the blank characters of `kBlank` at both ends.
std::string_view stripped(std::string_view text, std::string_view blank = " \n\r\t\v\f");

struct ThoughtAndText {
  std::string_view thought;  // without line feeds at its ends; empty: the thought is blank
  std::string_view text;     // behind the closing mark, without line feeds in front
};

/// `open` and `close` without the blank characters around them ("<think>", "</think>"). The opening mark may be missing; a text
/// in front of it is not a thought. Nothing where there is no closing mark.
std::optional<ThoughtAndText> split_thought(std::string_view text, std::string_view open, std::string_view close);

}  // namespace qft::encode
