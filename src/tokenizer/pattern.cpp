#include "pattern.h"

#include "qft/core/error.h"

#include <cctype>

#include "unicode.h"
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace qft::tokenizer {
namespace {

// Backtracking over a long run takes stack; beyond kJitStackMax the text is rejected.
constexpr std::size_t kJitStackStart = 64 << 10;
constexpr std::size_t kJitStackMax = std::size_t{256} << 20;

std::string message_of(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

// PCRE2's \s includes U+180E, Oniguruma's does not: both sets are spelled out.
constexpr std::string_view kSpaceRanges =
    R"(\x09-\x0D\x20\x85\xA0\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr std::string_view kNoSpace =
    R"(\x00-\x08\x0E-\x1F\x21-\x84\x86-\x9F\xA1-\x{167F}\x{1681}-\x{1FFF}\x{200B}-\x{2027}\x{202A}-\x{202E})"
    R"(\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{10FFFF})";

class Translator {
 public:
  explicit Translator(std::string_view pattern) : text_(pattern) {}

  std::string run() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\\') {
        escape(false);
      } else if (c == '[') {
        bracket();
      } else if (c == '(') {
        group();
      } else if (c == '{') {
        interval();
      } else {
        out_ += c;
        ++at_;
      }
    }
    if (ignores_case_) refuse_folds();
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    fail(
        "the pattern '{}' has {} at offset {}, which qft does not support: its meaning differs between regex engines. "
        "Write the pattern without it in tokenizer.json, or use a tokenizer of a supported family",
        text_, what, at_);
  }
  bool ahead(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  char next() const { return at_ + 1 < text_.size() ? text_[at_ + 1] : '\0'; }
  void take(std::size_t n) {
    out_ += text_.substr(at_, n);
    at_ += n;
  }

  void escape(bool in_class) {
    const char c = next();
    switch (c) {
      case 's':
        out_ += in_class ? std::string(kSpaceRanges) : "[" + std::string(kSpaceRanges) + "]";
        break;
      case 'S':
        out_ += in_class ? std::string(kNoSpace) : "[^" + std::string(kSpaceRanges) + "]";
        break;
      case 'd':
        out_ += "\\p{Nd}";
        break;
      case 'D':
        out_ += "\\P{Nd}";
        break;
      case 'v':
        out_ += "\\x0B";
        break;
      case 'p':
      case 'P':
        return property();
      case 'u':
        return unicode();
      case 'x':
        return hex();
      case 'A':
      case 'z':
      case 'Z':
        if (in_class) refuse(fmt::format("'\\{}' in a class", c));
        [[fallthrough]];
      case 't':
      case 'n':
      case 'r':
      case 'f':
      case 'a':
      case 'e':
        return take(2);
      default:
        if (c == '\0' || std::isalnum(static_cast<unsigned char>(c))) refuse(fmt::format("'\\{}'", c));
        return take(2);  // an escaped literal character
    }
    at_ += 2;
  }

  /// Names of one or two letters are general categories. Others are scripts, which PCRE2 would otherwise extend.
  void property() {
    const std::size_t close = text_.find('}', at_);
    if (at_ + 2 >= text_.size() || text_[at_ + 2] != '{' || close == std::string_view::npos) refuse("'\\p' without {}");
    std::string_view name = text_.substr(at_ + 3, close - at_ - 3);
    bool negated = text_[at_ + 1] == 'P';
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    out_ += fmt::format("\\{}{{{}{}}}", negated ? 'P' : 'p', name.size() > 2 ? "sc:" : "", name);
    at_ = close + 1;
  }

  void hex() {
    const std::size_t close = text_.substr(at_).starts_with("\\x{") ? text_.find('}', at_) : at_ + 1;
    if (close == std::string_view::npos) refuse("'\\x{' without its '}'");
    take(close + 1 - at_);
  }

  void unicode() {
    const std::string_view digits = text_.substr(at_ + 2).substr(0, 4);
    for (const char d : digits)
      if (!std::isxdigit(static_cast<unsigned char>(d))) refuse("'\\u' without four hex digits");
    if (digits.size() != 4) refuse("'\\u' without four hex digits");
    out_ += fmt::format("\\x{{{}}}", digits);
    at_ += 6;
  }

  void bracket() {
    take(ahead("[^") ? 2 : 1);
    if (at_ < text_.size() && text_[at_] == ']') take(1);
    while (at_ < text_.size() && text_[at_] != ']') {
      if (text_[at_] == '[') refuse("a class inside a class");
      if (ahead("&&")) refuse("'&&'");
      if (text_[at_] == '\\')
        escape(true);
      else
        take(1);
    }
    if (at_ == text_.size()) refuse("a class without its ']'");
    take(1);
  }

  void group() {
    for (const std::string_view plain : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?-i:"})
      if (ahead(plain)) return take(plain.size());
    if (ahead("(?i:") || (at_ == 0 && ahead("(?i)"))) {
      ignores_case_ = true;
      return take(4);
    }
    if (next() == '?' || next() == '*') refuse(fmt::format("'{}'", text_.substr(at_, 4)));
    take(1);
  }

  void interval() {
    const std::size_t close = text_.find('}', at_);
    if (close == std::string_view::npos || !std::isdigit(static_cast<unsigned char>(next())))
      refuse("'{' that does not begin {n,m} (write \\{)");
    if (close + 1 < text_.size() && (text_[close + 1] == '+' || text_[close + 1] == '?')) refuse("'+' or '?' after {n,m}");
    take(close + 1 - at_);
  }

  /// When case is ignored, Oniguruma lets "ss" match U+00DF and the like; PCRE2 does not.
  void refuse_folds() const {
    std::string lower;
    for (const char c : text_) lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    for (const std::string_view fold : {"ss", "st", "ff", "fi", "fl"})
      if (lower.find(fold) != std::string::npos) refuse(fmt::format("'{}' with case ignored", fold));
  }

  std::string_view text_;
  std::size_t at_ = 0;
  bool ignores_case_ = false;
  std::string out_;
};

}  // namespace

struct RegexScratch::State {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = nullptr;

  State() {
    require(data != nullptr && context != nullptr, "cannot allocate PCRE2's match data");
    if (stack = pcre2_jit_stack_create(kJitStackStart, kJitStackMax, nullptr); stack != nullptr)
      pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~State() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    if (stack != nullptr) pcre2_jit_stack_free(stack);
  }
};

RegexScratch::RegexScratch() : state_(std::make_unique<State>()) {}
RegexScratch::~RegexScratch() = default;

Regex::Regex(const std::string& pattern) : pattern_(pattern) {
  const std::string translated = translate_pattern(pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset, context.get());
  require(code != nullptr, "PCRE2 cannot compile the pattern '{}' (from '{}'): {} at offset {}", translated, pattern,
          message_of(error), offset);
  code_ = std::shared_ptr<void>(code, [](void* p) { pcre2_code_free(static_cast<pcre2_code*>(p)); });
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // on a machine without JIT, pcre2_match interprets
}

void Regex::cut(std::string_view text, RegexScratch& scratch, std::vector<Piece>& out) const {
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  RegexScratch::State& state = *scratch.state_;
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(state.data);
  std::size_t covered = 0, from = 0;
  bool matched = false;  // a match ended at `from`, so no empty match may begin there
  while (from <= text.size()) {
    const int rc = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from, PCRE2_NO_UTF_CHECK, state.data,
                               state.context);
    if (rc == PCRE2_ERROR_NOMATCH) break;
    require(rc >= 0, "matching '{}' failed at byte {} of {}: {}; split texts with very long runs", pattern_, from, text.size(),
            message_of(rc));
    const std::size_t begin = bounds[0], end = bounds[1];
    if (begin == end && matched && begin == covered) {
      if (from == text.size()) break;
      from += decode_utf8(text.data() + from).bytes;
      continue;
    }
    if (covered < begin) out.push_back({covered, begin, false});
    out.push_back({begin, end, true});
    covered = from = end;
    matched = true;
  }
  if (covered < text.size()) out.push_back({covered, text.size(), false});
}

std::string translate_pattern(std::string_view pattern) {
  return Translator(pattern).run();
}

}  // namespace qft::tokenizer
