#include "qft/optim/rule_args.h"

#include "qft/core/error.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include <fmt/ranges.h>

namespace qft::optim {
namespace {

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t"), last = text.find_last_not_of(" \t");
  return first == std::string_view::npos ? std::string_view() : text.substr(first, last - first + 1);
}

template <class T>
bool read(const std::string& text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

[[noreturn]] void refuse(std::string_view word, const std::string& expected, const std::string& got) {
  fail_config("optim_args: {}: expected {}, got '{}'", word, expected, got);
}

}  // namespace

RuleArgs::RuleArgs(std::string_view text) {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view pair = trimmed(text.substr(begin, end - begin));
    begin = end + 1;
    const std::size_t sign = pair.find('=');
    if (sign == std::string_view::npos || sign == 0)
      fail_config("optim_args: expected word=value pairs such as 'momentum=0.9,nesterov=true', got '{}'", text);
    const std::string word(trimmed(pair.substr(0, sign)));
    if (!values_.emplace(word, trimmed(pair.substr(sign + 1))).second) fail_config("optim_args: {} is given twice", word);
  }
}

const std::string* RuleArgs::find(std::string_view word) const {
  const auto it = values_.find(word);
  return it == values_.end() ? nullptr : &it->second;
}

double RuleArgs::number(std::string_view word, double otherwise, double least, double below) const {
  const std::string* text = find(word);
  if (text == nullptr) return otherwise;
  double value = std::numeric_limits<double>::quiet_NaN();
  if (!read(*text, value) || !(value >= least && value < below))
    refuse(word,
           std::isinf(below) ? fmt::format("a number of at least {}", least)
                             : fmt::format("a number from {} to below {}", least, below),
           *text);
  return value;
}

std::int64_t RuleArgs::count(std::string_view word, std::int64_t otherwise, std::int64_t most) const {
  const std::string* text = find(word);
  if (text == nullptr) return otherwise;
  std::int64_t value = 0;
  if (!read(*text, value) || value < 1 || value > most) refuse(word, fmt::format("a whole number from 1 to {}", most), *text);
  return value;
}

bool RuleArgs::flag(std::string_view word, bool otherwise) const {
  const std::string* text = find(word);
  if (text == nullptr) return otherwise;
  if (*text == "true" || *text == "True" || *text == "1") return true;
  if (*text == "false" || *text == "False" || *text == "0") return false;
  refuse(word, "true or false", *text);
}

std::string RuleArgs::choice(std::string_view word, std::string_view otherwise, std::span<const std::string_view> choices) const {
  const std::string* text = find(word);
  if (text == nullptr) return std::string(otherwise);
  if (std::find(choices.begin(), choices.end(), *text) == choices.end())
    refuse(word, fmt::format("one of {}", fmt::join(choices, ", ")), *text);
  return *text;
}

void RuleArgs::require_only(std::span<const std::string_view> words, std::string_view rule) const {
  for (const auto& [word, value] : values_)
    if (std::find(words.begin(), words.end(), word) == words.end())
      fail_config("optim_args: {} has no '{}': {}", rule, word,
                  words.empty() ? "it takes none" : fmt::format("it takes {}", fmt::join(words, ", ")));
}

}  // namespace qft::optim
