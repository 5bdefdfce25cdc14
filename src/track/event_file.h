// TensorBoard's event files: records of TFRecord, each an Event. Private to track.
#pragma once

#include "qft/track/metrics.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace qft::track {

/// A scalar of an event, by its tag.
struct Scalar {
  std::string tag;
  float value = 0;
};

/// One new file; a folder may have several, which TensorBoard reads in the order of their names.
class EventFile {
 public:
  /// Named to come after all that `dir` holds. Throws Error where it cannot be made.
  explicit EventFile(const std::filesystem::path& dir);

  /// From here on this file has all steps from `step`: TensorBoard drops what earlier files have of them.
  void start(std::int64_t step, double time);
  void scalars(const std::vector<Scalar>& values, std::int64_t step, double time);
  /// A text for TensorBoard's page of texts; markdown.
  void text(std::string_view tag, std::string_view markdown, std::int64_t step, double time);
  /// Throws Error where not all is written: then the file ends here, and another one is to be made.
  void flush();

 private:
  void write(std::string_view event);
  std::filesystem::path path_;
  std::ofstream out_;
};

/// The last step of each tag in the event files of `dir`, whoever wrote them. Reads up to a damaged record of each file.
LastSteps read_last_steps(const std::filesystem::path& dir);

}  // namespace qft::track
