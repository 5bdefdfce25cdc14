// Reads one message of a record in any common form: OpenAI's, ShareGPT's, ms-swift's, blocks.
#pragma once

#include "qft/encode/conversation.h"
#include "qft/encode/dataset_info.h"

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <simdjson.h>

namespace qft::encode {

/// The meaning of a role word. OpenAI's word `function` is a result if it follows a `function_call`.
enum class Speaker { system, user, assistant, observation, call };
constexpr bool is_answer(Speaker speaker) {
  return speaker == Speaker::assistant || speaker == Speaker::call;
}

/// Looks the word up in `tags`, then among the words common in datasets; nothing if unknown.
std::optional<Speaker> speaker_of(std::string_view word, const MessageTags& tags);

class MessageReader {
 public:
  explicit MessageReader(const DatasetSpec& spec) : spec_(spec) {}

  /// Reads message `number` (from 1) of `speaker` with its weights, thought and calls. Throws Error if a value has the wrong
  /// type, if two keys contradict each other, or if an answer's text is empty while an unread key has a value.
  Message read(const simdjson::dom::object& message, std::size_t number, Speaker speaker) const;
  /// Reads one side of a Formatting::turns message, under `key`.
  Message read_side(const simdjson::dom::object& pair, std::size_t number, const std::string& key, Role role) const;
  /// Reads the text of a message without calls: a system message, or a separate column.
  std::string read_text(const simdjson::dom::object& message, std::size_t number) const;

 private:
  /// `own_keys`: the keys of the role (or of the other side) and of the text.
  void check_other_keys(const simdjson::dom::object& message, std::size_t number, const std::array<std::string_view, 2>& own_keys,
                        const Message& read) const;

  const DatasetSpec& spec_;
};

}  // namespace qft::encode
