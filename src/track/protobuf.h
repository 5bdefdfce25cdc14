// The part of protobuf's wire format (https://protobuf.dev/programming-guides/encoding) that TensorBoard's events need. Private
// to track.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace qft::track {

/// Writes a message field by field.
class MessageWriter {
 public:
  MessageWriter& integer(int field, std::uint64_t value);
  MessageWriter& real64(int field, double value);
  MessageWriter& real32(int field, float value);
  MessageWriter& bytes(int field, std::string_view value);  ///< a text, or a message
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// A field that was read: `integer` holds a number (also a real number's bits), `bytes` a field with a length.
struct FieldRead {
  int field = 0;
  std::uint64_t integer = 0;
  std::string_view bytes;
};

/// Calls `take` for each field; returns false if the message is damaged.
bool read_message(std::string_view message, const std::function<void(const FieldRead&)>& take);

}  // namespace qft::track
