#include "qft/console/history.h"

#include <algorithm>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace qft::console {
namespace {

std::string as_line(std::string_view text) {
  std::string line;
  for (const char c : text) line += c == '\n' ? "\\n" : c == '\\' ? "\\\\" : std::string(1, c);
  return line;
}

std::string as_text(std::string_view line) {
  std::string text;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const bool escape = line[i] == '\\' && i + 1 < line.size();
    if (escape) ++i;
    text += escape && line[i] == 'n' ? '\n' : line[i];
  }
  return text;
}

std::vector<std::string> lines_of(const std::filesystem::path& file) {
  std::vector<std::string> lines;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);)
    if (!line.empty()) lines.push_back(std::move(line));
  return lines;
}

/// Writes the text to a file that only its owner can read. True if the whole text was written.
bool write_private(const std::filesystem::path& file, int flags, std::string_view text) {
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0600);
  if (fd < 0) return false;
  const bool whole = ::fchmod(fd, 0600) == 0 && ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  return ::close(fd) == 0 && whole;
}

/// Like create_directories(), but only the owner can access new ones, as the XDG specification requires.
void create_private(const std::filesystem::path& folder) {
  std::error_code error;
  if (folder.empty() || std::filesystem::exists(folder, error)) return;
  create_private(folder.parent_path());
  ::mkdir(folder.c_str(), 0700);
}

}  // namespace

std::filesystem::path history_file(std::string_view name) {
  const auto folder = [](const char* variable) {
    const char* value = std::getenv(variable);
    const std::filesystem::path path = value == nullptr ? "" : value;
    return path.is_absolute() ? path : std::filesystem::path();  // the specification says to ignore relative paths
  };
  const auto state = folder("XDG_STATE_HOME"), home = folder("HOME");
  if (!state.empty()) return state / "qft" / name;
  return home.empty() ? home : home / ".local/state/qft" / name;
}

History::History(std::filesystem::path file) : file_(std::move(file)) {
  if (file_.empty()) return;
  const auto lines = lines_of(file_);
  const auto kept = std::min(lines.size(), kKept);
  for (std::size_t i = lines.size() - kept; i < lines.size(); ++i) texts_.push_back(as_text(lines[i]));
  if (lines.size() > kKept) shorten(lines);
}

void History::add(const std::string& text) {
  if (!texts_.empty() && texts_.back() == text) return;
  texts_.push_back(text);
  if (texts_.size() > kKept) texts_.erase(texts_.begin());
  if (!file_.empty()) append(text);
}

void History::append(const std::string& text) {
  create_private(file_.parent_path());
  if (!write_private(file_, O_APPEND, as_line(text) + '\n')) return;
  const auto lines = lines_of(file_);
  if (lines.size() > kKept) shorten(lines);
}

void History::shorten(const std::vector<std::string>& lines) {
  std::string text;
  for (std::size_t i = lines.size() - kKept; i < lines.size(); ++i) text += lines[i] + '\n';
  const std::filesystem::path part = file_.string() + "." + std::to_string(::getpid());
  std::error_code error;
  if (write_private(part, O_TRUNC, text)) std::filesystem::rename(part, file_, error);
  std::filesystem::remove(part, error);
}

}  // namespace qft::console
