#include "qft/core/wrap.h"

#include <algorithm>
#include <sys/ioctl.h>

namespace qft {

int terminal_columns(int descriptor) {
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 20) return size.ws_col;
  return 100;
}

std::string wrapped(std::string_view text, std::size_t indent, std::size_t width) {
  std::string out;
  std::size_t column = 0;
  bool has_words = false;  // on this line
  while (!text.empty()) {
    const std::size_t word = std::min(text.find(' '), text.size());
    const std::size_t blanks = std::min(text.find_first_not_of(' ', word), text.size()) - word;
    if (column + word > width && has_words) {
      while (out.ends_with(' ')) out.pop_back();
      out += '\n' + std::string(indent, ' ');
      column = indent;
      has_words = false;
    }
    out += text.substr(0, word + blanks);
    column += word + blanks;
    has_words |= word > 0;
    text.remove_prefix(word + blanks);
  }
  while (out.ends_with(' ')) out.pop_back();
  return out;
}

}  // namespace qft
