// Copies standard input to a file, because the data readers need files. Private to eval.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace qft::eval {

/// A copy of the piped input in a new folder under the system's temporary folder: .json if it begins with { or [, else .txt. The
/// destructor removes both.
class PipedFile {
 public:
  static constexpr std::string_view kName = "standard input";

  /// Reads standard input to its end. Throws ConfigError if it is a terminal or empty, Error if the copy cannot be written.
  PipedFile();
  ~PipedFile();
  PipedFile(const PipedFile&) = delete;
  PipedFile& operator=(const PipedFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Returns `message` with the copy's path replaced by kName.
  std::string named(std::string message) const;

 private:
  std::filesystem::path path_;
};

}  // namespace qft::eval
