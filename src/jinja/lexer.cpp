#include "lexer.h"

#include "qft/core/error.h"

#include <algorithm>
#include <array>
#include <optional>

#include "unicode.h"

namespace qft::jinja {
namespace {

constexpr std::array<std::string_view, 25> kOperators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                                         "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ","};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_hex(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

// Normalises line ends to "
// "; drops one at the text's end if `drop_last`.
std::string normalize_lines(std::string_view source, bool drop_last) {
  std::string text;
  text.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      text += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      text += source[i];
    }
  }
  if (drop_last && text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  Lexer(std::string_view source, const std::string& name) : text_(normalize_lines(source, true)), name_(name) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) read_data();
    add(TokenKind::end, "");
    return std::move(tokens_);
  }

 private:
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) const {
    fail("{}:{}: {}", name_, line_, fmt::format(text, std::forward<Args>(args)...));
  }

  std::string_view rest() const { return std::string_view(text_).substr(at_); }
  void add(TokenKind kind, std::string value) { tokens_.push_back({kind, line_, std::move(value)}); }
  /// Advances by `count` bytes and counts their lines.
  void skip(std::size_t count) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(at_ + count), '\n'));
    at_ += count;
    line_starting_ = count > 0 && text_[at_ - 1] == '\n';
  }
  static std::size_t spaces(std::string_view text) { return text.size() - strip(text, nullptr, true, false).size(); }

  // Returns the bytes that "%}", "-%}", "+%}" (or another tag's end) and its trimmed blanks use at the start of `text`; 0:
  // none.
  std::size_t end_of_tag(std::string_view text, std::string_view end, bool plus, bool trims) const {
    if (text.starts_with('-') && text.substr(1).starts_with(end)) return 1 + end.size() + spaces(text.substr(1 + end.size()));
    if (plus && text.starts_with('+') && text.substr(1).starts_with(end)) return 1 + end.size();
    if (!text.starts_with(end)) return 0;
    return end.size() + (trims && text.substr(end.size()).starts_with('\n') ? 1 : 0);
  }

  // Adds the text up to the tag at `tag` (an offset in rest()), trimmed by the tag's sign and lstrip_blocks.
  void add_data(std::size_t tag, char sign, bool lstrip) {
    std::string_view data = rest().substr(0, tag);
    if (sign == '-') {
      data = strip(data, nullptr, false, true);
    } else if (sign != '+' && lstrip) {
      const std::size_t line = data.rfind('\n') + 1;  // npos + 1 is 0
      const std::string_view last = data.substr(line);
      if ((line > 0 || line_starting_) && !last.empty() && strip(last, nullptr, true, false).empty()) data = data.substr(0, line);
    }
    if (!data.empty()) add(TokenKind::data, std::string(data));
    skip(tag);
  }

  // Returns the end of a raw block's opening tag, {% raw %}, if one begins at `text`.
  static std::optional<std::size_t> raw_begin(std::string_view text) {
    std::size_t at = 2;
    if (at < text.size() && (text[at] == '-' || text[at] == '+')) ++at;
    at += spaces(text.substr(std::min(at, text.size())));
    if (at >= text.size() || !text.substr(at).starts_with("raw")) return std::nullopt;
    at += 3;
    at += spaces(text.substr(at));
    if (text.substr(at).starts_with("-%}")) return at + 3 + spaces(text.substr(at + 3));
    if (text.substr(at).starts_with("%}")) return at + 2;
    return std::nullopt;
  }

  void read_data() {
    std::size_t tag = rest().find('{');
    while (tag != std::string::npos && tag + 1 < rest().size() &&
           std::string_view("%#{").find(rest()[tag + 1]) == std::string::npos)
      tag = rest().find('{', tag + 1);
    if (tag == std::string::npos || tag + 1 >= rest().size()) {
      add(TokenKind::data, std::string(rest()));
      skip(rest().size());
      return;
    }
    const std::string_view open = rest().substr(tag);
    const char sign = open.size() > 2 && (open[2] == '-' || open[2] == '+') ? open[2] : ' ';
    const char kind = open[1];
    const std::optional<std::size_t> raw = kind == '%' ? raw_begin(open) : std::nullopt;
    add_data(tag, sign, kind != '{');
    if (raw) return read_raw(*raw);
    const std::size_t opening = sign == ' ' ? 2 : 3;
    if (kind == '#') return read_comment(opening);
    add(kind == '%' ? TokenKind::block_begin : TokenKind::variable_begin, "");
    skip(opening);
    read_tag(kind == '%');
  }

  void read_comment(std::size_t opening) {
    skip(opening);
    for (std::size_t i = 0; i < rest().size(); ++i) {
      if (const std::size_t end = end_of_tag(rest().substr(i), "#}", true, true); end > 0) return skip(i + end);
    }
    if (!rest().empty()) refuse("a comment without its end, '#}}'");
  }

  void read_raw(std::size_t opening) {
    skip(opening);
    for (std::size_t i = rest().find("{%"); i != std::string::npos; i = rest().find("{%", i + 1)) {
      std::string_view tag = rest().substr(i + 2);
      const char sign = !tag.empty() && (tag[0] == '-' || tag[0] == '+') ? tag[0] : ' ';
      if (sign != ' ') tag.remove_prefix(1);
      tag.remove_prefix(spaces(tag));
      if (!tag.starts_with("endraw")) continue;
      tag.remove_prefix(6);
      tag.remove_prefix(spaces(tag));
      const std::size_t end = end_of_tag(tag, "%}", true, true);
      if (end == 0) continue;
      const std::size_t tag_bytes = rest().size() - i - tag.size() + end;
      add_data(i, sign, true);
      return skip(tag_bytes);
    }
    if (!rest().empty()) refuse("a raw block without its end, '{{% endraw %}}'");
  }

  void read_tag(bool block) {
    std::string closing;  // for the open brackets
    for (;;) {
      if (rest().empty()) return;  // the parser reports the missing end
      if (closing.empty()) {
        if (const std::size_t end = end_of_tag(rest(), block ? "%}" : "}}", block, block); end > 0) {
          add(block ? TokenKind::block_end : TokenKind::variable_end, "");
          return skip(end);
        }
      }
      if (const std::size_t blank = spaces(rest()); blank > 0)
        skip(blank);
      else if (!read_number() && !read_name() && !read_text())
        read_operator(closing);
    }
  }

  // Returns the end of the digits from `from` on, with single "_" between them.
  static std::size_t digits_end(std::string_view text, std::size_t from, bool (*digit)(char)) {
    std::size_t at = from;
    while (at < text.size() && (digit(text[at]) || (at > from && text[at] == '_' && at + 1 < text.size() && digit(text[at + 1]))))
      ++at;
    return at;
  }

  bool read_number() {
    const std::string_view text = rest();
    if (!is_digit(text[0])) return false;
    std::size_t end = digits_end(text, 0, is_digit);
    const bool after_dot = at_ > 0 && text_[at_ - 1] == '.';  // in a.0.1: not a float
    bool real = false;
    if (!after_dot) {
      std::size_t at = end;
      if (at + 1 < text.size() && text[at] == '.' && is_digit(text[at + 1])) {
        at = digits_end(text, at + 1, is_digit);
        real = true;
      }
      if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
        const std::size_t digits = at + (at + 1 < text.size() && (text[at + 1] == '+' || text[at + 1] == '-') ? 2 : 1);
        if (digits < text.size() && is_digit(text[digits])) {
          at = digits_end(text, digits, is_digit);
          real = true;
        }
      }
      if (real) end = at;
    }
    if (!real) end = integer_end(text);
    std::string digits(text.substr(0, end));
    std::erase(digits, '_');
    add(real ? TokenKind::real : TokenKind::integer, std::move(digits));
    skip(end);
    return true;
  }

  static std::size_t integer_end(std::string_view text) {
    if (text[0] != '0') return digits_end(text, 0, is_digit);
    const char base = text.size() > 2 ? static_cast<char>(text[1] | 0x20) : ' ';
    bool (*const digit)(char) = base == 'x'   ? is_hex
                                : base == 'o' ? +[](char c) { return c >= '0' && c <= '7'; }
                                : base == 'b' ? +[](char c) { return c == '0' || c == '1'; }
                                              : nullptr;
    if (digit != nullptr) {
      const std::size_t from = text[2] == '_' ? 3 : 2;
      if (const std::size_t end = digits_end(text, from, digit); end > from) return end;
    }
    return digits_end(text, 0, [](char c) { return c == '0'; });
  }

  bool read_name() {
    const std::string_view text = rest();
    std::size_t end = 0;
    for (std::size_t at = 0; at < text.size(); end = at)
      if (!has_flag(next_char(text, at), kWord | kAlpha | kNumeric)) break;
    if (end == 0) return false;
    const std::string_view name = text.substr(0, end);
    bool valid = true;
    for (std::size_t at = 0; at < end;) {
      const bool first = at == 0;
      valid = has_flag(next_char(name, at), first ? kWordStart : kWord) && valid;
    }
    if (!valid) refuse("'{}' is not a name: one of its characters is not allowed there", name);
    add(TokenKind::name, std::string(name));
    skip(end);
    return true;
  }

  bool read_text() {
    const std::string_view text = rest();
    const char quote = text[0];
    if (quote != '\'' && quote != '"') return false;
    std::size_t end = 1;
    while (end < text.size() && text[end] != quote) end += text[end] == '\\' ? 2 : 1;
    if (end >= text.size()) return false;
    add(TokenKind::text, unescape(text.substr(1, end - 1)));
    skip(end + 1);
    return true;
  }

  // Keeps a backslash before a character outside ASCII: Jinja2 first writes the character as an escape, so both stay as
  // letters.
  static std::string escape_chars(std::string_view text) {
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
      const char32_t c = next_char(text, at);
      if (c < 0x80)
        out += static_cast<char>(c);
      else
        out += c < 0x100     ? fmt::format("\\x{:02x}", static_cast<unsigned>(c))
               : c < 0x10000 ? fmt::format("\\u{:04x}", static_cast<unsigned>(c))
                             : fmt::format("\\U{:08x}", static_cast<unsigned>(c));
    }
    return out;
  }

  std::string unescape(std::string_view raw) const {
    if (raw.find('\\') == raw.npos) return std::string(raw);
    const std::string text = escape_chars(raw);
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\') {
        out += text[i];
        continue;
      }
      static constexpr std::string_view kLetters = "\\'\"abfnrtv", kMeant = "\\'\"\a\b\f\n\r\t\v";
      if (++i >= text.size()) refuse("a text ends with a lone backslash");
      const char c = text[i];
      if (c == '\n') continue;
      if (const std::size_t letter = kLetters.find(c); letter != kLetters.npos)
        out += kMeant[letter];
      else if (c >= '0' && c <= '7')
        i += append_code(out, text, i, 3, 8) - 1;
      else if (c == 'x' || c == 'u' || c == 'U')
        i += append_code(out, text, i + 1, c == 'x' ? 2 : c == 'u' ? 4 : 8, 16);
      else if (c == 'N')
        refuse("a character by its name, '\\N', is not implemented: write the character itself");
      else
        (out += '\\') += c;
    }
    return out;
  }

  // Appends the character given by up to `digits` digits at `at`; returns the digits used. Hexadecimal escapes need all digits.
  std::size_t append_code(std::string& out, std::string_view text, std::size_t at, std::size_t digits, unsigned base) const {
    char32_t code = 0;
    std::size_t count = 0;
    for (; count < digits && at + count < text.size(); ++count) {
      const char c = text[at + count];
      if (base == 8 ? c < '0' || c > '7' : !is_hex(c)) break;
      code = code * base + static_cast<char32_t>(is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    if (base == 16 && count < digits) refuse("an escape with {} digits, not {}, in a text", count, digits);
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
      refuse("an escape in a text gives U+{:X}, which is not a character", static_cast<unsigned>(code));
    append_char(out, code);
    return count;
  }

  void read_operator(std::string& closing) {
    const auto* op =
        std::find_if(kOperators.begin(), kOperators.end(), [&](std::string_view o) { return rest().starts_with(o); });
    if (op == kOperators.end()) {
      if (rest()[0] == ';') return add(TokenKind::op, ";"), skip(1);
      std::size_t end = 0;
      next_char(rest(), end);
      refuse("unexpected character '{}'", rest().substr(0, end));
    }
    constexpr std::string_view kOpening = "({[", kClosing = ")}]";
    if (op->size() == 1) {
      if (const std::size_t kind = kOpening.find(op->front()); kind != kOpening.npos) closing += kClosing[kind];
      if (kClosing.find(op->front()) != kClosing.npos) {
        if (closing.empty()) refuse("'{}' closes nothing", *op);
        if (closing.back() != op->front()) refuse("found '{}', expected '{}'", *op, closing.back());
        closing.pop_back();
      }
    }
    add(TokenKind::op, std::string(*op));
    skip(op->size());
  }

  const std::string text_;
  const std::string& name_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::data:
      return "text";
    case TokenKind::variable_begin:
      return "'{{'";
    case TokenKind::variable_end:
      return "'}}'";
    case TokenKind::block_begin:
      return "'{%'";
    case TokenKind::block_end:
      return "'%}'";
    case TokenKind::text:
      return fmt::format("the text '{}'", token.value);
    case TokenKind::end:
      return "the template's end";
    default:
      return "'" + token.value + "'";
  }
}

std::vector<Token> tokenize(std::string_view source, const std::string& name) {
  return Lexer(source, name).run();
}

}  // namespace qft::jinja
