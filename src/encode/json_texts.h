// Lists that a record holds as JSON texts, as in csv files and some exports.
#pragma once

#include "qft/encode/dataset_info.h"

#include <optional>
#include <string>
#include <string_view>

#include <simdjson.h>

namespace qft::encode {

/// Parses a JSON text; the value is valid until the thread's next call. Nothing if the text is not JSON.
std::optional<simdjson::dom::element> parse_json_text(std::string_view text);

/// Whether the text is the JSON of one message or a list of messages: objects with both keys.
bool holds_messages(std::string_view text, std::string_view role, std::string_view content);

/// Returns the record as JSON, with JSON texts replaced by their values: `messages` and `history`, which are not texts in any
/// format, and `chosen` and `rejected` if their text is the JSON of messages. A blank text becomes null. Returns "" if nothing
/// changes. Throws Error if a text is not JSON or `history` is not a list.
std::string without_json_texts(const simdjson::dom::object& record, const DatasetSpec& spec);

}  // namespace qft::encode
