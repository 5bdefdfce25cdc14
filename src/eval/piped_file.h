// Standard input as a file, which the readers of data need. Private to eval.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace qft::eval {

/// A copy of what is piped in, in a new folder of the system's temporary one: .json if it begins with { or [, else .txt. Both
/// are removed in the end.
class PipedFile {
 public:
  static constexpr std::string_view kName = "standard input";

  /// Reads standard input to its end. Throws ConfigError if that is a terminal or empty, Error if the copy cannot be written.
  PipedFile();
  ~PipedFile();
  PipedFile(const PipedFile&) = delete;
  PipedFile& operator=(const PipedFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// `message` with kName wherever it names the copy.
  std::string named(std::string message) const;

 private:
  std::filesystem::path path_;
};

}  // namespace qft::eval
