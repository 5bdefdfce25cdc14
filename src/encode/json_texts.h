// Lists that a record holds as texts of JSON, as csv files and some exports have them.
#pragma once

#include "qft/encode/dataset_info.h"

#include <optional>
#include <string>
#include <string_view>

#include <simdjson.h>

namespace qft::encode {

/// The value of a text that is JSON, valid until the thread's next call; nothing where it is none.
std::optional<simdjson::dom::element> parse_json_text(std::string_view text);

/// Whether the text is the JSON of a message or of a list of them: objects that have both keys.
bool holds_messages(std::string_view text, std::string_view role, std::string_view content);

/// The record as JSON with such texts as what they stand for: `messages` and `history` are no texts in any format, `chosen` and
/// `rejected` where their text is the JSON of messages. Blank is null. "" where the record stays as it is. Throws Error where a
/// text is not JSON, and where `history` is something else than a list.
std::string without_json_texts(const simdjson::dom::object& record, const DatasetSpec& spec);

}  // namespace qft::encode
