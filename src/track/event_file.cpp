#include "event_file.h"

#include "qft/core/clock.h"
#include "qft/core/error.h"
#include "qft/core/hash.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <unistd.h>

namespace qft::track {
namespace {

namespace fs = std::filesystem;

// Field numbers from tensorboard/compat/proto: event.proto, summary.proto, tensor.proto, tensor_shape.proto.
namespace event {
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
}
namespace session_log {
constexpr int kStatus = 1, kStart = 1;
}
namespace summary {
constexpr int kValue = 1, kTag = 1, kSimpleValue = 2, kTensor = 8, kMetadata = 9, kPluginData = 1, kPluginName = 1;
}
namespace tensor {
constexpr int kDtype = 1, kString = 7, kShape = 2, kDim = 2, kDimSize = 1, kStringVal = 8;
}

constexpr std::string_view kPrefix = "events.out.tfevents.";

/// TFRecord's checksum: CRC32C, rotated so that it also works for data that contain checksums.
std::uint32_t masked_crc(const void* data, std::size_t bytes) {
  const std::uint32_t crc = crc32c(data, bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

MessageWriter at(std::int64_t step, double time) {
  MessageWriter m;
  m.real64(event::kWallTime, time).integer(event::kStep, static_cast<std::uint64_t>(step));
  return m;
}

/// Returns a folder's event files in reading order.
std::vector<fs::path> event_files(const fs::path& dir) {
  std::vector<fs::path> files;
  std::error_code code;
  for (fs::directory_iterator it(dir, code), end; !code && it != end; it.increment(code))
    if (it->path().filename().string().starts_with(kPrefix)) files.push_back(it->path());
  std::ranges::sort(files);
  return files;
}

/// Returns the seconds in a file's name; 0 if there are none.
std::int64_t seconds_of(const fs::path& file) {
  return std::atoll(file.filename().string().c_str() + kPrefix.size());
}

std::string host() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

void take_event(std::string_view message, LastSteps& last) {
  std::int64_t step = 0;
  std::vector<std::string> tags;
  bool starts = false;
  read_message(message, [&](const FieldRead& f) {
    if (f.field == event::kStep) step = static_cast<std::int64_t>(f.integer);
    if (f.field == event::kSessionLog)
      read_message(f.bytes, [&](const FieldRead& s) {
        starts = starts || (s.field == session_log::kStatus && s.integer == session_log::kStart);
      });
    if (f.field == event::kSummary)
      read_message(f.bytes, [&](const FieldRead& value) {
        read_message(value.bytes, [&](const FieldRead& v) {
          if (value.field == summary::kValue && v.field == summary::kTag) tags.emplace_back(v.bytes);
        });
      });
  });
  if (starts) last.cut(step - 1);
  for (const std::string& tag : tags) last.add(tag, step);
}

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

EventFile::EventFile(const fs::path& dir) {
  std::error_code code;
  fs::create_directories(dir, code);
  require(!code, "cannot make directory '{}': {}", dir.string(), code.message());
  const double now = unix_seconds();
  auto seconds = static_cast<std::int64_t>(now);
  for (const fs::path& file : event_files(dir)) seconds = std::max(seconds, seconds_of(file) + 1);
  path_ = dir / fmt::format("{}{:010d}.{}.{}.0", kPrefix, seconds, host(), ::getpid());
  out_.open(path_, std::ios::binary | std::ios::app);
  require(out_.good(), "cannot write '{}': {}", path_.string(), std::strerror(errno));
  write(MessageWriter().real64(event::kWallTime, now).bytes(event::kFileVersion, "brain.Event:2").text());
}

void EventFile::start(std::int64_t step, double time) {
  MessageWriter status;
  status.integer(session_log::kStatus, session_log::kStart);
  write(at(step, time).bytes(event::kSessionLog, status.text()).text());
}

void EventFile::scalars(const std::vector<Scalar>& values, std::int64_t step, double time) {
  MessageWriter list;
  for (const Scalar& s : values) {
    MessageWriter value;
    value.bytes(summary::kTag, s.tag).real32(summary::kSimpleValue, s.value);
    list.bytes(summary::kValue, value.text());
  }
  write(at(step, time).bytes(event::kSummary, list.text()).text());
}

void EventFile::text(std::string_view tag, std::string_view markdown, std::int64_t step, double time) {
  MessageWriter dim, shape, words, plugin, metadata, value, list;
  dim.integer(tensor::kDimSize, 1);
  shape.bytes(tensor::kDim, dim.text());
  words.integer(tensor::kDtype, tensor::kString).bytes(tensor::kShape, shape.text()).bytes(tensor::kStringVal, markdown);
  plugin.bytes(summary::kPluginName, "text");
  metadata.bytes(summary::kPluginData, plugin.text());
  value.bytes(summary::kTag, tag).bytes(summary::kTensor, words.text()).bytes(summary::kMetadata, metadata.text());
  list.bytes(summary::kValue, value.text());
  write(at(step, time).bytes(event::kSummary, list.text()).text());
}

void EventFile::write(std::string_view event) {
  const std::uint64_t length = event.size();
  const std::uint32_t length_crc = masked_crc(&length, sizeof length), crc = masked_crc(event.data(), event.size());
  out_.write(reinterpret_cast<const char*>(&length), sizeof length);
  out_.write(reinterpret_cast<const char*>(&length_crc), sizeof length_crc);
  out_.write(event.data(), static_cast<std::streamsize>(event.size()));
  out_.write(reinterpret_cast<const char*>(&crc), sizeof crc);
}

void EventFile::flush() {
  out_.flush();
  require(out_.good(), "cannot write '{}': is the disk full?", path_.string());
}

LastSteps read_last_steps(const fs::path& dir) {
  LastSteps last;
  for (const fs::path& file : event_files(dir)) {
    std::ifstream in(file, std::ios::binary);
    std::uint64_t length = 0;
    std::uint32_t crc = 0;
    std::string message;
    while (in.read(reinterpret_cast<char*>(&length), sizeof length) && in.read(reinterpret_cast<char*>(&crc), sizeof crc) &&
           crc == masked_crc(&length, sizeof length)) {
      message.resize(length);
      if (!in.read(message.data(), static_cast<std::streamsize>(length)) || !in.read(reinterpret_cast<char*>(&crc), sizeof crc) ||
          crc != masked_crc(message.data(), message.size()))
        break;
      take_event(message, last);
    }
  }
  return last;
}

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
