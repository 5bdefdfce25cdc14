// One record of a source format as a Conversation, by the rules of LLaMA-Factory's data formats.
#pragma once

#include "qft/encode/conversation.h"
#include "qft/encode/dataset_info.h"
#include "qft/encode/drop_reason.h"
#include "qft/encode/record_source.h"

#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <simdjson.h>

namespace qft::encode {

struct Turns;

/// The column with the category where dataset_info.json names none.
inline constexpr std::string_view kDifficulty = "difficulty";

/// How a record's messages may end: training needs the answer, a prompt to be answered may lack it.
enum class Ending { answer, any };

/// Belongs to one thread. The spec must outlive it.
class RecordConverter {
 public:
  RecordConverter(const DatasetSpec& spec, bool is_text, Ending ending = Ending::answer)
      : spec_(spec), is_text_(is_text), ending_(ending) {}

  /// Throws Error, without the place, for a record that is no JSON object or holds a value of the wrong type.
  std::variant<Conversation, Drop> convert(const RecordText& record);
  /// The record's columns in order; "text" for a line of text. Throws Error as convert() does.
  std::vector<std::string> columns(const RecordText& record);
  /// The keys of its messages, of each in turn; none where the record has no list of objects there.
  std::vector<std::string> message_keys(const RecordText& record);
  /// A record's JSON object, valid until the next call. Throws Error as convert() does.
  simdjson::dom::object parse(std::string_view text);

 private:
  using Object = simdjson::dom::object;
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
  std::string quoted_;  // a record whose numbers JSON does not have
};

}  // namespace qft::encode
