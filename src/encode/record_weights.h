// Reads the label weights in a record.
#pragma once

#include "qft/encode/conversation.h"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <simdjson.h>

namespace qft::encode {

/// Message keys that say whether the message is learned (true or false; ms-swift's key, then axolotl's), and keys for the
/// weight of its text (a number >= 0; ms-swift's key, then OpenAI's).
inline constexpr std::string_view kLossKeys[] = {"loss", "train", "training"};
inline constexpr std::string_view kWeightKeys[] = {"loss_scale", "weight"};

/// Sets loss and weight of message `number` from these keys; null counts as absent. Throws Error if a value is invalid or two
/// keys contradict each other.
void read_message_weights(const simdjson::dom::object& message, std::size_t number, Message& read);

/// Returns the number in a record's `column`; 1 if there is none. Throws Error if it is not a number >= 0.
float record_weight(const simdjson::dom::object& record, const std::string& column);

}  // namespace qft::encode
