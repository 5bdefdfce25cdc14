// Why a record makes no item.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace qft::data {

enum class DropReason : std::uint8_t {
  turns,       // users and answers do not alternate, or an answer or a question is missing at the end
  no_answer,   // without the answer (or the pair of answers) that the stage learns
  no_tokens,   // nothing is left of it
  unreadable,  // broken, with on_error: skip
};
inline constexpr std::size_t kDropReasons = 4;
using DropCounts = std::array<std::int64_t, kDropReasons>;

/// For messages: "turns out of order", ...
constexpr std::string_view describe(DropReason reason) {
  constexpr std::string_view kTexts[kDropReasons] = {"turns out of order", "no answer", "no tokens",
                                                     "unreadable"};
  return kTexts[static_cast<std::size_t>(reason)];
}

}  // namespace qft::data
