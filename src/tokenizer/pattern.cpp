#include "pattern.h"

#include "qft/core/error.h"

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

}  // namespace qft::tokenizer
