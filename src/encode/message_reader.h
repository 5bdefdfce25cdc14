// One message of a record, in any of the forms that data sets have: OpenAI's, ShareGPT's, ms-swift's, blocks.
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

/// The word for a message's role stands for one of these; of OpenAI's words `function` is a result behind a `function_call`.
enum class Speaker { system, user, assistant, observation, call };
constexpr bool is_answer(Speaker speaker) {
  return speaker == Speaker::assistant || speaker == Speaker::call;
}

/// Nothing for an unknown word. The words of `tags` come first, then those that are common in data sets.
std::optional<Speaker> speaker_of(std::string_view word, const MessageTags& tags);

class MessageReader {
 public:
  explicit MessageReader(const DatasetSpec& spec) : spec_(spec) {}

  /// Message `number` (from 1) of `speaker`, with its weights, thought and calls. Throws Error where a value is of the wrong
  /// type, two keys contradict each other, or an answer's text is empty while a key that is not read has a value.
  Message read(const simdjson::dom::object& message, std::size_t number, Speaker speaker) const;
  /// A side of Formatting::turns, under `key`.
  Message read_side(const simdjson::dom::object& pair, std::size_t number, const std::string& key, Role role) const;
  /// The text of a message without calls: of the system, or of a column of its own.
  std::string read_text(const simdjson::dom::object& message, std::size_t number) const;

 private:
  /// `own_keys`: those of the role, or of the other side, and of the text.
  void check_other_keys(const simdjson::dom::object& message, std::size_t number, const std::array<std::string_view, 2>& own_keys,
                        const Message& read) const;

  const DatasetSpec& spec_;
};

}  // namespace qft::encode
