// Converts one record of a source format to a Conversation, by the rules of LLaMA-Factory's data formats. Also the raw texts of
// records that become tokens.
#pragma once

#include "qft/encode/conversation.h"
#include "qft/encode/dataset_info.h"
#include "qft/encode/drop_reason.h"
#include "qft/encode/record_source.h"

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <simdjson.h>

namespace qft::encode {

struct Turns;

/// The category column if dataset_info.json names none.
inline constexpr std::string_view kDifficulty = "difficulty";

/// How a record's messages may end. Training needs the answer; a prompt may lack it.
enum class Ending { answer, any };

/// Belongs to one thread. The spec must outlive it.
class RecordConverter {
 public:
  RecordConverter(const DatasetSpec& spec, bool is_text, Ending ending = Ending::answer)
      : spec_(spec), is_text_(is_text), ending_(ending) {}

  /// Throws Error, without the place, if a record is not a JSON object or holds a value of the wrong type.
  std::variant<Conversation, Drop> convert(const RecordText& record);
  /// Returns the record's columns in order; "text" for a line of text. Throws Error as convert() does.
  std::vector<std::string> columns(const RecordText& record);
  /// Returns the keys of the record's messages, message by message; empty if the record has no list of objects there.
  std::vector<std::string> message_keys(const RecordText& record);
  /// Returns a record's JSON object, valid until the next call. Throws Error as convert() does.
  simdjson::dom::object parse(std::string_view text);

 private:
  using Object = simdjson::dom::object;
  std::optional<Drop> convert_passages(const Object& record, Conversation& conversation) const;
  void convert_alpaca(const Object& record, Conversation& conversation) const;
  std::optional<Drop> convert_messages(const Object& record, Conversation& conversation) const;
  std::optional<Drop> add_answer(const Object& record, const std::string& column, std::span<const Message> question,
                                 Conversation& conversation) const;
  Turns read_answer(const simdjson::dom::element& value, const std::string& column) const;
  bool begins_with_answer(const Object& message) const;
  void read_tool_columns(const Object& record, Conversation& conversation) const;
  void read_feedback(const Object& record, Conversation& conversation) const;
  void read_label(const Object& record, Conversation& conversation) const;
  void add_origin(const Object& record, Conversation& conversation) const;

  const DatasetSpec& spec_;
  bool is_text_;
  Ending ending_;
  simdjson::dom::parser parser_;
  std::string quoted_;  // a record with numbers that JSON does not allow
};

/// Belongs to one thread. The spec must outlive it.
class RecordTexts {
 public:
  RecordTexts(const DatasetSpec& spec, bool is_text) : spec_(spec), is_text_(is_text), converter_(spec, is_text) {}

  /// Passes each text of the used columns, at any depth, to `body` with its column. Throws Error as RecordConverter::convert()
  /// does if the record is not JSON.
  void each(const RecordText& record, const std::function<void(std::string_view column, std::string_view text)>& body);

 private:
  const DatasetSpec& spec_;
  bool is_text_;
  RecordConverter converter_;
};

}  // namespace qft::encode
