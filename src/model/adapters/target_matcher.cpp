#include "target_matcher.h"

#include "qft/core/error.h"

#include <utility>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace qft::model {
namespace {

// Matching steps; an expression that needs more for a module name practically never ends.
constexpr std::uint32_t kMaxMatchSteps = 1'000'000;

std::string message_of(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

PCRE2_SPTR bytes_of(const std::string& text) {
  return reinterpret_cast<PCRE2_SPTR>(text.data());
}

}  // namespace

NamePattern::NamePattern(std::string what, std::string expression) : what_(std::move(what)), expression_(std::move(expression)) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(bytes_of(expression_), expression_.size(),
                                   PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  if (code == nullptr)
    fail_config("{}: '{}' is not a valid regular expression: {} at character {}", what_, expression_, message_of(error), offset);
  code_ = std::shared_ptr<void>(code, [](void* p) { pcre2_code_free(static_cast<pcre2_code*>(p)); });
}

bool NamePattern::matches(const std::string& name) const {
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(pcre2_match_data_create(1, nullptr),
                                                                                 &pcre2_match_data_free);
  const std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> context(pcre2_match_context_create(nullptr),
                                                                                          &pcre2_match_context_free);
  require(data != nullptr && context != nullptr, "cannot allocate PCRE2's match data");
  pcre2_set_match_limit(context.get(), kMaxMatchSteps);
  const int rc = pcre2_match(code, bytes_of(name), name.size(), 0, 0, data.get(), context.get());
  if (rc < 0 && rc != PCRE2_ERROR_NOMATCH)
    fail_config("{}: cannot match '{}' against '{}': {}; simplify the expression", what_, expression_, name, message_of(rc));
  return rc >= 0;
}

}  // namespace qft::model
