// Contents of messages as LLaMA-Factory's version 1 writes them: [{"type": "text", "value": "..."}].
#pragma once

#include <cstddef>
#include <string>

#include <simdjson.h>

namespace qft::encode {

/// The texts of message `number` (from 1) under `key`, one after the other. Throws Error for blocks of another type.
std::string text_of_blocks(const simdjson::dom::object& message, const std::string& key, std::size_t number);

/// Its calls as a JSON list; "" where it has none. Throws Error where there are texts beside them.
std::string calls_of_blocks(const simdjson::dom::object& message, const std::string& key, std::size_t number);

/// Throws Error where the answer's loss_weight is not 1: answers are learned alike.
void require_full_weight(const simdjson::dom::object& message, std::size_t number);

}  // namespace qft::encode
