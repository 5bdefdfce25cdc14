#include "record_weights.h"

#include "qft/core/error.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "record_value.h"

namespace qft::encode {
namespace {

namespace dom = simdjson::dom;

// A number, or its text, as in csv files.
std::optional<double> number_in(const dom::element& value) {
  double number = 0.0;
  if (value.get(number) == simdjson::SUCCESS) return number;
  std::string_view text;
  if (value.get(text) != simdjson::SUCCESS) return std::nullopt;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

float weight_of(const dom::element& value, const std::string& what) {
  const auto number = number_in(value);
  if (!number || !(*number >= 0) || *number > std::numeric_limits<float>::max())
    fail("{}: expected a label weight of at least 0, got {}; rename the key if it means something else", what, describe(value));
  return static_cast<float>(*number);
}

bool flag_of(const dom::element& value, const std::string& what) {
  const auto flag = as_flag(value);
  if (!flag)
    fail("{}: expected true or false (whether the message is learned), got {}; for a weight use loss_scale or weight", what,
         describe(value));
  return *flag;
}

bool is_among(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

void read_message_weights(const dom::object& message, std::size_t number, Message& read) {
  std::string_view loss_key, weight_key;
  for (const auto& [key, value] : message) {
    const char first = key.empty() ? '\0' : key.front();
    if ((first != 'l' && first != 't' && first != 'w') || value.is_null()) continue;
    const auto what = [&, &name = key] { return fmt::format("message {}: {}", number, name); };
    if (key == "train_detail" || key == "training_detail")
      fail("{}: qft cannot select parts of a message by position; remove it", what());
    if (is_among(kLossKeys, key)) {
      const bool flag = flag_of(value, what());
      if (read.loss.value_or(flag) != flag) fail("{} is {}, but {} is {}; remove one", what(), flag, loss_key, !flag);
      read.loss = flag;
      loss_key = key;
    } else if (is_among(kWeightKeys, key)) {
      const float weight = weight_of(value, what());
      if (read.weight.value_or(weight) != weight)
        fail("{} is {}, but {} is {}; remove one", what(), weight, weight_key, *read.weight);
      read.weight = weight;
      weight_key = key;
    }
  }
  if (read.loss && read.weight && *read.loss != (*read.weight > 0))
    fail("message {}: {} is {}, but {} is {}; remove one", number, loss_key, *read.loss, weight_key, *read.weight);
}

float record_weight(const dom::object& record, const std::string& column) {
  const auto value = find(record, column);
  return value ? weight_of(*value, column) : 1.0F;
}

}  // namespace qft::encode
