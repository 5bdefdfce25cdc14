// What a record says that its labels count.
#pragma once

#include "qft/encode/conversation.h"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <simdjson.h>

namespace qft::encode {

/// The keys of a message that say whether it is learned (true or false; ms-swift's, then axolotl's), and what its text counts (a
/// number from 0 on; ms-swift's, then OpenAI's).
inline constexpr std::string_view kLossKeys[] = {"loss", "train", "training"};
inline constexpr std::string_view kWeightKeys[] = {"loss_scale", "weight"};

/// Sets loss and weight of message `number` from these keys; null says nothing. Throws Error where a value is none, or two of the
/// keys contradict each other.
void read_message_weights(const simdjson::dom::object& message, std::size_t number, Message& read);

/// The number in `column` of a record; 1 where there is none. Throws Error where it is no number from 0 on.
float record_weight(const simdjson::dom::object& record, const std::string& column);

}  // namespace qft::encode
