#include "protobuf.h"

#include <bit>

namespace qft::track {
namespace {

enum WireType : unsigned { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void put_tag(std::string& out, int field, WireType type) {
  put_varint(out, static_cast<std::uint64_t>(field) << 3 | type);
}

void put_fixed(std::string& out, std::uint64_t bits, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(bits >> (8 * i));
}

bool get_varint(std::string_view& in, std::uint64_t& value) {
  value = 0;
  for (unsigned shift = 0; shift < 64 && !in.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(in.front());
    in.remove_prefix(1);
    value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

bool get_fixed(std::string_view& in, std::uint64_t& value, std::size_t bytes) {
  if (in.size() < bytes) return false;
  value = 0;
  for (std::size_t i = 0; i < bytes; ++i) value |= static_cast<std::uint64_t>(static_cast<unsigned char>(in[i])) << (8 * i);
  in.remove_prefix(bytes);
  return true;
}

}  // namespace

MessageWriter& MessageWriter::integer(int field, std::uint64_t value) {
  put_tag(text_, field, kVarint);
  put_varint(text_, value);
  return *this;
}

MessageWriter& MessageWriter::real64(int field, double value) {
  put_tag(text_, field, kFixed64);
  put_fixed(text_, std::bit_cast<std::uint64_t>(value), 8);
  return *this;
}

MessageWriter& MessageWriter::real32(int field, float value) {
  put_tag(text_, field, kFixed32);
  put_fixed(text_, std::bit_cast<std::uint32_t>(value), 4);
  return *this;
}

MessageWriter& MessageWriter::bytes(int field, std::string_view value) {
  put_tag(text_, field, kLength);
  put_varint(text_, value.size());
  text_ += value;
  return *this;
}

bool read_message(std::string_view message, const std::function<void(const FieldRead&)>& take) {
  while (!message.empty()) {
    std::uint64_t tag = 0, length = 0;
    if (!get_varint(message, tag)) return false;
    FieldRead read;
    read.field = static_cast<int>(tag >> 3);
    bool good = false;
    switch (tag & 7) {
      case kVarint:
        good = get_varint(message, read.integer);
        break;
      case kFixed64:
        good = get_fixed(message, read.integer, 8);
        break;
      case kFixed32:
        good = get_fixed(message, read.integer, 4);
        break;
      case kLength:
        good = get_varint(message, length) && length <= message.size();
        if (good) {
          read.bytes = message.substr(0, length);
          message.remove_prefix(length);
        }
        break;
      default:
        break;
    }
    if (!good) return false;
    take(read);
  }
  return true;
}

}  // namespace qft::track
