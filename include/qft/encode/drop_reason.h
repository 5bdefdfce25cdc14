// Reasons why a record yields no item.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace qft::encode {

enum class DropReason : std::uint8_t {
  role,          // a message has an unknown role, or none
  turns,         // users and answers do not alternate, or an answer or a question is missing at the end
  no_answer,     // the answer (or pair of answers) that the stage learns is missing
  empty_answer,  // the answers that the stage learns, or one of a pair, have neither text nor calls
  no_tokens,     // no tokens are left
  unreadable,    // broken, with on_error: skip
  empty_text,    // an anchor, or the document that belongs to it, is an empty text
};
inline constexpr std::size_t kDropReasons = 7;

/// Returns the text for messages: "turns out of order", ...
constexpr std::string_view describe(DropReason reason) {
  constexpr std::string_view kTexts[kDropReasons] = {"unknown role", "turns out of order", "no answer", "empty answer",
                                                     "no tokens",    "unreadable",         "empty text"};
  return kTexts[static_cast<std::size_t>(reason)];
}

/// The reason, and a detail such as "message 3: its role is 'clerk', ..."; "" if the reason says enough.
struct Drop {
  DropReason reason;
  std::string detail{};
};

/// Counts of dropped records by reason, and the first record for each reason: "file:line: detail".
struct Drops {
  std::array<std::int64_t, kDropReasons> counts{};
  std::array<std::string, kDropReasons> first;

  std::int64_t total() const;
  void add(DropReason reason, const std::string& what);
  /// Adds the counts of `later`, which holds the records after these.
  Drops& operator+=(const Drops& later);
};

/// Call if none of a dataset's `records` yields an item. Throws Error with the reasons if every record has an unknown role or
/// is unreadable, else warns.
void require_usable(const std::string& dataset, std::int64_t records, const Drops& drops);

/// Formats "12 turns out of order (the first: data/a.jsonl:7: message 2: ...), 3 no answer (...)", most frequent first; "" if
/// empty.
std::string describe(const Drops& drops);

}  // namespace qft::encode
