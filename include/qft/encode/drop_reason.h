// Why a record makes no item.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace qft::encode {

enum class DropReason : std::uint8_t {
  role,          // a message has none of the roles, or no role at all
  turns,         // users and answers do not alternate, or an answer or a question is missing at the end
  no_answer,     // without the answer (or the pair of answers) that the stage learns
  empty_answer,  // the answers that the stage learns, or one of a pair, have neither text nor calls
  no_tokens,     // nothing is left of it
  unreadable,    // broken, with on_error: skip
};
inline constexpr std::size_t kDropReasons = 6;

/// For messages: "turns out of order", ...
constexpr std::string_view describe(DropReason reason) {
  constexpr std::string_view kTexts[kDropReasons] = {"unknown role", "turns out of order", "no answer",
                                                     "empty answer", "no tokens",          "unreadable"};
  return kTexts[static_cast<std::size_t>(reason)];
}

/// One record, with what is wrong in it: "message 3: its role is 'clerk', ..."; "" where the reason says it all.
struct Drop {
  DropReason reason;
  std::string detail{};
};

/// How many records made no item, by reason, and the first of each: "file:line: what is wrong".
struct Drops {
  std::array<std::int64_t, kDropReasons> counts{};
  std::array<std::string, kDropReasons> first;

  std::int64_t total() const;
  void add(DropReason reason, const std::string& what);
  /// `later`: of records behind these.
  Drops& operator+=(const Drops& later);
};

/// Where not one of the `records` of a dataset makes an item: throws Error, with the reasons, if all have an unknown role or
/// cannot be read, else warns.
void require_usable(const std::string& dataset, std::int64_t records, const Drops& drops);

/// "12 turns out of order (the first: data/a.jsonl:7: message 2: ...), 3 no answer (...)", the commonest first; "" for none.
std::string describe(const Drops& drops);

}  // namespace qft::encode
