#include "qft/config/value.h"
#include "qft/config/yaml.h"
#include "qft/core/error.h"

#include <sstream>

#include "tree_builder.h"
#include "yaml_fault.h"
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

namespace qft::config {
namespace {

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
