#include "keys.h"

#include "qft/console/printable.h"
#include "qft/console/terminal.h"

#include <algorithm>
#include <iterator>
#include <string_view>

namespace qft::console {
namespace {

constexpr int kEscape = 0x1b;
/// Longest time between an Escape and the rest of an Alt key or an arrow key: a slow network can separate them.
constexpr int kEscapeMilliseconds = 500;
constexpr std::string_view kPasteEnd = "\x1b[201~";

struct Row {
  std::string_view sent;
  Key key;
};

constexpr Row kControls[] = {
    {"\r", Key::enter},      {"\n", Key::enter},    {"\x7f", Key::erase_left},    {"\b", Key::erase_left},
    {"\x01", Key::home},     {"\x02", Key::left},   {"\x03", Key::interrupt},     {"\x04", Key::end_of_input},
    {"\x05", Key::end},      {"\x06", Key::right},  {"\x0b", Key::erase_to_end},  {"\x0c", Key::clear_screen},
    {"\x0e", Key::down},     {"\x10", Key::up},     {"\x15", Key::erase_to_home}, {"\x17", Key::erase_space_left},
    {"\x19", Key::put_back}, {"\x1a", Key::suspend}};

/// Keys after an Escape: with Alt held.
constexpr Row kAlt[] = {{"\r", Key::new_line},       {"\n", Key::new_line},        {"b", Key::word_left},
                        {"f", Key::word_right},      {"d", Key::erase_word_right}, {"\x7f", Key::erase_word_left},
                        {"\b", Key::erase_word_left}};

/// Keys after Escape and [ or O, by parameters and last byte: xterm, the Linux console, rxvt, and terminals that report
/// Shift-Enter.
constexpr Row kSequences[] = {{"A", Key::up},
                              {"B", Key::down},
                              {"C", Key::right},
                              {"D", Key::left},
                              {"H", Key::home},
                              {"F", Key::end},
                              {"1~", Key::home},
                              {"4~", Key::end},
                              {"7~", Key::home},
                              {"8~", Key::end},
                              {"3~", Key::erase_right},
                              {"1;5C", Key::word_right},
                              {"1;5D", Key::word_left},
                              {"1;3C", Key::word_right},
                              {"1;3D", Key::word_left},
                              {"5C", Key::word_right},
                              {"5D", Key::word_left},
                              {"c", Key::word_right},
                              {"d", Key::word_left},
                              {"3;5~", Key::erase_word_right},
                              {"M", Key::enter},
                              {"13;2u", Key::new_line},
                              {"13;3u", Key::new_line},
                              {"27;2;13~", Key::new_line},
                              {"27;3;13~", Key::new_line}};

template <std::size_t n>
Key key_of(const Row (&rows)[n], std::string_view sent) {
  const auto* row = std::ranges::find(rows, sent, &Row::sent);
  return row == std::end(rows) ? Key::none : row->key;
}

/// Terminals send \r for line breaks in pasted text.
std::string with_line_breaks(std::string_view bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const bool pair = bytes[i] == '\n' && i > 0 && bytes[i - 1] == '\r';
    if (!pair) text += bytes[i] == '\r' ? '\n' : bytes[i];
  }
  return text;
}

}  // namespace

Press KeyReader::next() {
  const int byte = source_(-1);
  if (byte == Terminal::kClosed) return {Key::closed};
  if (byte < 0) return {Key::woken};
  if (byte == kEscape) return after_escape();
  const char sent = static_cast<char>(byte);
  if (sent == '\t') return {Key::text, "\t"};
  if (byte < 0x20 || byte == 0x7f) return {key_of(kControls, {&sent, 1})};
  const std::string text = printable(character(static_cast<unsigned char>(byte)));
  return text.empty() ? Press{} : Press{Key::text, text};
}

int KeyReader::next_byte(int milliseconds) {
  int byte = source_(milliseconds);
  while (byte == Terminal::kWoken && !Terminal::interrupted()) byte = source_(milliseconds);
  return byte;
}

std::string KeyReader::character(unsigned char first) {
  std::string bytes(1, static_cast<char>(first));
  const int more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : first >= 0xc0 ? 1 : 0;
  for (int i = 0; i < more; ++i) {
    const int byte = next_byte(-1);
    if (byte < 0) break;
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

Press KeyReader::after_escape() {
  const int byte = next_byte(kEscapeMilliseconds);
  if (byte < 0) return {byte == Terminal::kClosed ? Key::closed : Key::none};
  if (byte == '[' || byte == 'O') return control_sequence();
  if (byte == kEscape) return after_escape();  // rxvt's Alt with an arrow
  const char sent = static_cast<char>(byte);
  if (byte >= 0x80) character(static_cast<unsigned char>(byte));
  return {key_of(kAlt, {&sent, 1})};
}

Press KeyReader::control_sequence() {
  std::string sent;
  while (sent.empty() || sent.back() < 0x40 || sent.back() > 0x7e) {
    const int byte = next_byte(-1);
    if (byte < 0) return {byte == Terminal::kClosed ? Key::closed : Key::none};
    sent += static_cast<char>(byte);
    if (sent == "[") {  // the Linux console's function keys have one byte more
      next_byte(-1);
      return {};
    }
  }
  if (sent == "200~") return pasted();
  return {key_of(kSequences, sent)};
}

Press KeyReader::pasted() {
  std::string bytes;
  while (!bytes.ends_with(kPasteEnd)) {
    const int byte = next_byte(-1);
    if (byte < 0) return {byte == Terminal::kClosed ? Key::closed : Key::none};
    bytes += static_cast<char>(byte);
  }
  bytes.resize(bytes.size() - kPasteEnd.size());
  return {Key::paste, printable(with_line_breaks(bytes))};
}

}  // namespace qft::console
