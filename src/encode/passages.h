// Reads the documents of an anchor or a query. Private to encode.
#pragma once

#include "qft/encode/conversation.h"
#include "qft/encode/dataset_info.h"
#include "qft/encode/drop_reason.h"

#include <optional>

#include <simdjson.h>

namespace qft::encode {

/// Reads the anchor into conversation.prompt (one user message) and conversation.system, and the documents into
/// conversation.passages, the relevant ones first. A column of documents holds a text, a list of texts, a list of messages (one
/// document: the text of its last message, with the system message as its instruction) or a list of such lists. A label that is
/// a list has one number, 1 or 0, for each document of the positive column. Returns the reason if the record yields no item.
/// Throws Error for values of another type.
std::optional<Drop> read_passages(const simdjson::dom::object& record, const DatasetSpec& spec, Conversation& conversation);

}  // namespace qft::encode
