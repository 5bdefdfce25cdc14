#include "edit_text.h"

#include "qft/console/printable.h"

#include <algorithm>
#include <utility>

namespace qft::console {
namespace {

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n';
}

/// True for letters and digits; all non-ASCII characters count as letters.
bool is_word(char c) {
  return static_cast<unsigned char>(c) >= 0x80 || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

}  // namespace

void EditText::set(std::string text) {
  text_ = std::move(text);
  cursor_ = text_.size();
}

void EditText::insert(std::string_view text) {
  text_.insert(cursor_, text);
  cursor_ += text.size();
}

void EditText::left() {
  if (cursor_ > 0) cursor_ = cluster_before(text_, cursor_);
}

void EditText::right() {
  if (cursor_ < text_.size()) cursor_ = cluster_at(text_, cursor_).end;
}

std::size_t EditText::line_begin(std::size_t at) const {
  const auto found = at == 0 ? std::string::npos : text_.rfind('\n', at - 1);
  return found == std::string::npos ? 0 : found + 1;
}

std::size_t EditText::line_end(std::size_t at) const {
  return std::min(text_.find('\n', at), text_.size());
}

std::size_t EditText::word_begin() const {
  std::size_t at = cursor_;
  while (at > 0 && !is_word(text_[at - 1])) --at;
  while (at > 0 && is_word(text_[at - 1])) --at;
  return at;
}

std::size_t EditText::word_end() const {
  std::size_t at = cursor_;
  while (at < text_.size() && !is_word(text_[at])) ++at;
  while (at < text_.size() && is_word(text_[at])) ++at;
  return at;
}

int EditText::column() const {
  int columns = 0;
  for (std::size_t at = line_begin(cursor_); at < cursor_;) {
    const Cluster cluster = cluster_at(text_, at);
    columns += cluster.columns;
    at = cluster.end;
  }
  return columns;
}

void EditText::go_to_column(std::size_t line, int column) {
  cursor_ = line;
  for (const std::size_t end = line_end(line); cursor_ < end;) {
    const Cluster cluster = cluster_at(text_, cursor_);
    column -= cluster.columns;
    if (column < 0) return;
    cursor_ = cluster.end;
  }
}

bool EditText::up() {
  const std::size_t begin = line_begin(cursor_);
  if (begin == 0) return false;
  go_to_column(line_begin(begin - 1), column());
  return true;
}

bool EditText::down() {
  const std::size_t end = line_end(cursor_);
  if (end == text_.size()) return false;
  go_to_column(end + 1, column());
  return true;
}

void EditText::erase_left() {
  const std::size_t end = cursor_;
  left();
  text_.erase(cursor_, end - cursor_);
}

void EditText::erase_right() {
  if (cursor_ < text_.size()) text_.erase(cursor_, cluster_at(text_, cursor_).end - cursor_);
}

void EditText::erase_space_left() {
  std::size_t at = cursor_;
  while (at > 0 && is_space(text_[at - 1])) --at;
  while (at > 0 && !is_space(text_[at - 1])) --at;
  cut(at, cursor_);
}

void EditText::erase_to_end() {
  const std::size_t end = line_end(cursor_);
  cut(cursor_, end == cursor_ ? std::min(end + 1, text_.size()) : end);
}

void EditText::cut(std::size_t begin, std::size_t end) {
  if (begin == end) return;
  taken_ = text_.substr(begin, end - begin);
  text_.erase(begin, end - begin);
  cursor_ = begin;
}

bool EditText::continue_line() {
  const auto last = text_.find_last_not_of('\\');
  const std::size_t backslashes = text_.size() - (last == std::string::npos ? 0 : last + 1);
  if (backslashes % 2 == 0) return false;
  text_.back() = '\n';
  cursor_ = text_.size();
  return true;
}

}  // namespace qft::console
