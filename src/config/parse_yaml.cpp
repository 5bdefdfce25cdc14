#include "qft/config/value.h"
#include "qft/config/yaml.h"
#include "qft/core/error.h"

#include <algorithm>
#include <iterator>
#include <sstream>

#include "tree_builder.h"
#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

namespace qft::config {
namespace {

struct YamlFault {
  int line = 1, column = 1;
  std::string what;
};

// Messages of yaml-cpp, and advice for them.
constexpr std::pair<std::string_view, std::string_view> kReasons[] = {
    {"end of sequence flow not found", "a list has '[' but no ']'"},
    {"end of map flow not found", "a mapping has '{' but no '}'"},
    {"end of map not found", "the line does not continue the lines before it: check its indentation and quotes"},
    {"end of sequence not found", "the line does not continue the lines before it: check its indentation, or add a missing '-'"},
    {"illegal EOF in scalar", "a quoted text has no closing quote"},
    {"illegal block entry", "a list item ('- ...') is not allowed here: begin the list on a new line"},
    {"illegal map key", "a key is not allowed here: is the line before it complete?"},
    {"the referenced anchor is not defined", "YAML takes a value that begins with '*' as a reference: put it in quotes"},
    {"unknown escape character", "unknown escape after '\\' in double quotes: write '\\\\', or use single quotes"},
};

// Returns the line without its end, or "" if there is no such line.
std::string_view line_at(std::string_view text, int number) {
  for (int line = 1; line < number; ++line) {
    const std::size_t end = text.find('\n');
    if (end == text.npos) return {};
    text.remove_prefix(end + 1);
  }
  text = text.substr(0, text.find('\n'));
  return text.ends_with('\r') ? text.substr(0, text.size() - 1) : text;
}

std::size_t indentation(std::string_view line) {
  return std::min(line.find_first_not_of(' '), line.size());
}

std::string shown(std::string_view line) {
  constexpr std::size_t kShown = 60;
  const std::size_t begin = indentation(line);
  return std::string(line.substr(begin, kShown)) + (line.size() > begin + kShown ? " ..." : "");
}

// Returns the number of the nearest earlier line that is not blank or a comment.
int line_before(std::string_view text, int number) {
  const std::string_view here = line_at(text, number);
  std::string_view rest = here.data() == nullptr ? text : text.substr(0, static_cast<std::size_t>(here.data() - text.data()));
  while (--number > 0 && !rest.empty()) {
    if (rest.ends_with('\n')) rest.remove_suffix(1);
    const std::size_t end_of_previous = rest.rfind('\n');
    const std::string_view line = rest.substr(end_of_previous == rest.npos ? 0 : end_of_previous + 1);
    rest = rest.substr(0, rest.size() - line.size());
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin != line.npos && line[begin] != '#') return number;
  }
  return 0;
}

bool has_tab(std::string_view line) {
  const std::size_t begin = line.find_first_not_of(" \t");
  return begin != line.npos && line.substr(0, begin).find('\t') != line.npos;
}

// Explains a colon inside a value.
YamlFault unexpected_colon(std::string_view text, int line, int column) {
  const std::string_view here = line_at(text, line);
  const int before = line_before(text, line);
  const std::string_view previous = line_at(text, before);
  const std::size_t begin = indentation(here), first = here.find(':');
  if (first != here.npos && static_cast<std::size_t>(column) > first + 1)
    return {line, column, fmt::format("a second colon in '{}': put the value in quotes", shown(here))};
  if (before > 0 && previous.find(':') == previous.npos)
    return {before, 1, fmt::format("'{}' has no colon: write key: value", shown(previous))};
  if (before > 0 && begin > indentation(previous))
    return {line, static_cast<int>(begin) + 1,
            fmt::format("'{}' is indented deeper than the line before it, which has a value: begin both in the same column",
                        shown(here))};
  return {line, column, fmt::format("'{}' does not continue the line before it: is a quote missing there?", shown(here))};
}

/// Explains why the parser stopped at `line` and `column` (from 1). `reason` is the parser's message.
YamlFault find_yaml_fault(std::string_view text, int line, int column, std::string_view reason) {
  for (const int at : {line, line_before(text, line)}) {
    const std::string_view tabbed = at > 0 ? line_at(text, at) : std::string_view();
    if (has_tab(tabbed))
      return {at, 1, fmt::format("'{}' is indented by a tab: use spaces", shown(tabbed.substr(tabbed.find_first_not_of(" \t"))))};
  }
  if (reason == "illegal map value") return unexpected_colon(text, line, column);
  const std::string_view here = line_at(text, line);
  if (reason == "unknown token" && static_cast<std::size_t>(column) <= here.size())
    return {line, column,
            fmt::format("a value cannot begin with '{}': put it in quotes", here[static_cast<std::size_t>(column) - 1])};
  const auto known = std::find_if(std::begin(kReasons), std::end(kReasons), [&](const auto& row) { return row.first == reason; });
  const std::string what(known == std::end(kReasons) ? reason : known->second);
  return {line, column, here.empty() ? what : fmt::format("{}, at '{}'", what, shown(here))};
}

/// True if the quoted text that begins at `line` and `column` has a closing quote.
bool is_quote_closed(std::string_view text, int line, int column) {
  const std::string_view first = line_at(text, line);
  const auto at = static_cast<std::size_t>(column) - 1;
  if (at >= first.size() || (first[at] != '"' && first[at] != '\'')) return true;  // no quote begins here
  const char quote = first[at];
  text.remove_prefix(static_cast<std::size_t>(first.data() - text.data()) + at + 1);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (quote == '"' && text[i] == '\\')
      ++i;
    else if (text[i] == quote && quote == '\'' && text.substr(i + 1).starts_with('\''))
      ++i;
    else if (text[i] == quote)
      return true;
  }
  return false;
}

int line_of(const YAML::Mark& mark) {
  return mark.line + 1;
}

bool is_null_word(const std::string& text) {
  return text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL";
}

class YamlEvents : public YAML::EventHandler {
 public:
  YamlEvents(std::string_view where, std::string_view text) : builder_(where), text_(text) {}

  void OnDocumentStart(const YAML::Mark& mark) override { first_line_ = line_of(mark); }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    check(mark, "", anchor);
    builder_.null(line_of(mark));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { refuse_anchor(mark); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& text) override {
    check(mark, tag, anchor);
    const bool quoted = tag == "!";  // yaml-cpp's tag of a scalar in quotes; a plain one has "?"
    if (!quoted && is_null_word(text)) return builder_.null(line_of(mark));
    last_scalar_ = mark;
    builder_.scalar(text, quoted, line_of(mark));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    check(mark, tag, anchor);
    builder_.begin(Value::Kind::list, line_of(mark));
  }
  void OnSequenceEnd() override { builder_.end(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    check(mark, tag, anchor);
    builder_.begin(Value::Kind::map, line_of(mark));
  }
  void OnMapEnd() override { builder_.end(); }

  Value take() {
    // yaml-cpp reads an unclosed quote to the end of the file.
    const int line = line_of(last_scalar_), column = last_scalar_.column + 1;
    if (!is_quote_closed(text_, line, column))
      builder_.reject(line, fmt::format("not valid YAML (column {}): the quote that opens here is not closed", column));
    return builder_.take();
  }
  int first_line() const { return first_line_; }

 private:
  [[noreturn]] void refuse_anchor(const YAML::Mark& mark) const {
    builder_.reject(line_of(mark), "YAML anchors and aliases (& and *) are not supported: write out the value");
  }
  void check(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) const {
    if (anchor != 0) refuse_anchor(mark);
    if (!tag.empty() && tag != "?" && tag != "!") {
      builder_.reject(line_of(mark), fmt::format("YAML tags are not supported: remove '{}'", tag));
    }
  }

  TreeBuilder builder_;
  std::string_view text_;
  YAML::Mark last_scalar_;
  int first_line_ = 1;
};

}  // namespace

Value parse_yaml(const std::string& text, std::string_view where) {
  std::istringstream in(text);
  YamlEvents events(where, text);
  try {
    YAML::Parser parser(in);
    parser.HandleNextDocument(events);
    Value value = events.take();
    YamlEvents next(where, text);
    if (parser.HandleNextDocument(next)) {
      if (text.find("---") == text.npos)  // YAML takes this as a new document
        fail_config("{}:{}: not valid YAML: the line is indented less than the first line: begin all keys in the same column",
                    where, next.first_line());
      fail_config("{}:{}: more than one YAML document ('---') in the file: keep one", where, next.first_line());
    }
    return value;
  } catch (const YAML::Exception& error) {
    const YamlFault fault = find_yaml_fault(text, line_of(error.mark), error.mark.column + 1, error.msg);
    fail_config("{}:{}: not valid YAML (column {}): {}", where, fault.line, fault.column, fault.what);
  }
}

void require_plain_yaml(const std::string& text, std::string_view where) {
  parse_yaml(text, where);
}

}  // namespace qft::config
