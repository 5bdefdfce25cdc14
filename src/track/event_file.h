// Writes and reads TensorBoard's event files: TFRecord records, each with one Event in protobuf's wire format
// (https://protobuf.dev/programming-guides/encoding). Private to track.
#pragma once

#include "qft/track/metrics.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace qft::track {

/// A scalar of an event.
struct Scalar {
  std::string tag;
  float value = 0;
};

/// A new event file; a folder may have several, which TensorBoard reads in the order of their names.
class EventFile {
 public:
  /// Chooses a name that sorts after all files in `dir`. Throws Error if the file cannot be made.
  explicit EventFile(const std::filesystem::path& dir);

  /// Declares that all steps from `step` on are in this file: TensorBoard drops them from earlier files.
  void start(std::int64_t step, double time);
  void scalars(const std::vector<Scalar>& values, std::int64_t step, double time);
  /// Writes a text in markdown for TensorBoard's text page.
  void text(std::string_view tag, std::string_view markdown, std::int64_t step, double time);
  /// Throws Error if not everything is written: then this file ends here, and the caller must make another one.
  void flush();

 private:
  void write(std::string_view event);
  std::filesystem::path path_;
  std::ofstream out_;
};

/// Returns each tag's last step in all event files of `dir`, whoever wrote them. Reads each file up to its first damaged record.
LastSteps read_last_steps(const std::filesystem::path& dir);

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
