#include "dictionary.h"

#include "qft/core/error.h"
#include "qft/io/file.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "words.h"

namespace qft::eval {
namespace {

/// jieba gives each of these words this frequency.
constexpr std::u32string_view kLatinWords[] = {U"AT&T", U"C++", U"c++", U"C#", U"c#"};
constexpr std::int64_t kLatinFrequency = 3;

std::string_view without_ends(std::string_view line) {
  constexpr std::string_view kSpace = " \t\r\v\f";
  const std::size_t begin = std::min(line.find_first_not_of(kSpace), line.size());
  return line.substr(begin, line.find_last_not_of(kSpace) + 1 - begin);
}

}  // namespace

Dictionary Dictionary::read(const std::filesystem::path& file) {
  const std::string text = io::read_text_file(file);
  Dictionary d;
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = without_ends(std::string_view(text).substr(begin, end - begin));
    const std::size_t space = line.find(' ');
    const std::string_view rest = space == line.npos ? std::string_view() : line.substr(space + 1);
    const std::string_view digits = rest.substr(0, rest.find(' '));
    std::int64_t frequency = -1;
    const auto parsed = std::from_chars(digits.begin(), digits.end(), frequency);
    require(parsed.ec == std::errc() && parsed.ptr == digits.end() && frequency >= 0,
            "'{}', line {}: expected 'word frequency [tag]', got '{}': JIEBA_DICT takes a dictionary in jieba's format",
            file.string(), number + 1, line);
    d.add(code_points(line.substr(0, space)), frequency);
    begin = end + 1;
  }
  require(d.total_ > 0, "the dictionary '{}' has no words", file.string());
  d.sort();
  return d;
}

Dictionary Dictionary::latin() {
  Dictionary d;
  for (const auto word : kLatinWords) d.add(word, kLatinFrequency);
  d.sort();
  return d;
}

void Dictionary::add(std::u32string_view word, std::int64_t frequency) {
  entries_.push_back({static_cast<std::uint32_t>(letters_.size()), static_cast<std::uint32_t>(word.size()), frequency});
  letters_ += word;
  total_ += frequency;
}

void Dictionary::sort() {
  std::ranges::sort(entries_, [this](const Entry& a, const Entry& b) {
    const int order = word(a).compare(word(b));
    return order < 0 || (order == 0 && a.begin > b.begin);  // the later line first
  });
  const auto again = std::ranges::unique(entries_, [this](const Entry& a, const Entry& b) { return word(a) == word(b); });
  entries_.erase(again.begin(), again.end());
}

void Dictionary::matches(std::u32string_view text, std::vector<Match>& out) const {
  out.clear();
  const double log_total = std::log(static_cast<double>(total_));
  auto first = entries_.begin(), last = entries_.end();  // the words that begin with text[0, depth)
  for (std::size_t depth = 0; depth < text.size(); ++depth) {
    const auto letter = [&](const Entry& e) { return letters_[e.begin + depth]; };
    first = std::partition_point(first, last, [&](const Entry& e) { return e.length <= depth || letter(e) < text[depth]; });
    last = std::partition_point(first, last, [&](const Entry& e) { return letter(e) == text[depth]; });
    if (first == last) break;
    if (first->length == depth + 1 && first->frequency > 0)
      out.push_back({depth + 1, std::log(static_cast<double>(first->frequency)) - log_total});
  }
  if (out.empty()) out.push_back({1, -log_total});
}

bool Dictionary::contains(std::u32string_view wanted) const {
  const auto found = std::ranges::lower_bound(entries_, wanted, {}, [this](const Entry& e) { return word(e); });
  return found != entries_.end() && word(*found) == wanted && found->frequency > 0;
}

}  // namespace qft::eval
