// What a person has typed before, in memory and in a file.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace qft::console {

/// $XDG_STATE_HOME/qft/NAME, else ~/.local/state/qft/NAME; empty where the environment has neither.
std::filesystem::path history_file(std::string_view name);

/// Texts, the oldest first. The file has one a line, with \n and \\ for line breaks and backslashes. It can be read by its owner
/// alone and holds the last kKept texts of all programs that use it. Where it cannot be read or written, memory serves alone.
class History {
 public:
  static constexpr std::size_t kKept = 1000;

  /// An empty path: memory alone.
  explicit History(std::filesystem::path file);
  /// A text that is the same as the last one is not added again.
  void add(const std::string& text);
  const std::vector<std::string>& texts() const { return texts_; }

 private:
  void append(const std::string& text);
  void shorten(const std::vector<std::string>& lines);

  std::filesystem::path file_;
  std::vector<std::string> texts_;
};

}  // namespace qft::console
