// Earlier messages of the user, in memory and in a file.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace qft::console {

/// Returns $XDG_STATE_HOME/qft/NAME, else ~/.local/state/qft/NAME; empty if the environment has neither variable.
std::filesystem::path history_file(std::string_view name);

/// Texts, oldest first. The file has one text per line, with \n and \\ for line breaks and backslashes. Only its owner can read
/// it. It holds the last kKept texts of all programs that use it. If reading or writing fails, the history is only in memory.
class History {
 public:
  static constexpr std::size_t kKept = 1000;

  /// An empty path keeps the history only in memory.
  explicit History(std::filesystem::path file);
  /// Adds a text, unless it equals the last one.
  void add(const std::string& text);
  const std::vector<std::string>& texts() const { return texts_; }

 private:
  void append(const std::string& text);
  void shorten(const std::vector<std::string>& lines);

  std::filesystem::path file_;
  std::vector<std::string> texts_;
};

}  // namespace qft::console
