#include "content_blocks.h"

#include "qft/core/error.h"

#include <string_view>

#include "record_value.h"

namespace qft::encode {
namespace {

namespace dom = simdjson::dom;

constexpr std::string_view kTextBlock = "text", kCall = "tool_call";

std::string what_is(std::size_t number, const std::string& key) {
  return fmt::format("message {}: {}", number, key);
}

// The value of a block of `wanted` type; of others nothing.
std::string value_of(const dom::object& block, std::string_view wanted, const std::string& what) {
  const std::string type = text_or_empty(block, "type");
  if (type == "image_url" || type == "video_url" || type == "audio_url")
    fail("{}: a block has the type '{}': qft trains on text alone", what, type);
  if (type == "reasoning")
    fail("{}: a block has the type 'reasoning': write thoughts into the text, in the words of the template (<think>)", what);
  if (type != kTextBlock && type != kCall)
    fail("{}: a block has the type '{}': there are {} and {}", what, type, kTextBlock, kCall);
  if (type != wanted) return {};
  const auto value = find(block, "value");
  if (!value) fail("{}: a block has no 'value'; its keys are {}", what, keys_of(block));
  return text_of(*value, what);
}

dom::array blocks_of(const dom::object& message, const std::string& key, const std::string& what) {
  const auto value = find(message, key);
  dom::array blocks;
  if (!value) fail("{}: is missing; the message has {}", what, keys_of(message));
  if (value->get(blocks) != simdjson::SUCCESS)
    fail("{}: expected a list of blocks with type and value, got {}", what, describe(*value));
  return blocks;
}

std::string joined(const dom::object& message, const std::string& key, std::size_t number, std::string_view type,
                   std::string_view separator) {
  const std::string what = what_is(number, key);
  std::string all;
  for (const dom::element block : blocks_of(message, key, what)) {
    const std::string value = value_of(object_of(block, what), type, what);
    if (!value.empty()) all.append(all.empty() ? "" : separator).append(value);
  }
  return all;
}

}  // namespace

std::string text_of_blocks(const dom::object& message, const std::string& key, std::size_t number) {
  return joined(message, key, number, kTextBlock, "");
}

std::string calls_of_blocks(const dom::object& message, const std::string& key, std::size_t number) {
  const std::string calls = joined(message, key, number, kCall, ", ");
  if (calls.empty()) return {};
  if (!text_of_blocks(message, key, number).empty())
    fail("{}: has texts and calls, which is not implemented: write them as two messages", what_is(number, key));
  return fmt::format("[{}]", calls);
}

void require_full_weight(const dom::object& message, std::size_t number) {
  const auto weight = find(message, "loss_weight");
  double value = 1.0;
  if (weight && (weight->get(value) != simdjson::SUCCESS || value != 1.0))
    fail("message {}: loss_weight: expected 1, got {}: answers are learned alike; mask_history learns the last one only", number,
         simdjson::minify(*weight));
}

}  // namespace qft::encode
