#include "qft/config/value.h"
#include "qft/core/error.h"
#include "qft/core/json.h"

#include <cstddef>
#include <iterator>
#include <utility>

#include "tree_builder.h"
#include <nlohmann/json.hpp>

namespace qft::config {
namespace {

// Feeds the text to the parser and counts lines: the parser reports no positions.
class CountingIterator {
 public:
  using difference_type = std::ptrdiff_t;
  using value_type = char;
  using pointer = const char*;
  using reference = const char&;
  using iterator_category = std::input_iterator_tag;

  CountingIterator(const char* at, int* line) : at_(at), line_(line) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *line_ += *at_ == '\n';
    ++at_;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }

 private:
  const char* at_;
  int* line_;
};

class JsonEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  JsonEvents(std::string_view where, std::string_view text, const int* line) : builder_(where), text_(text), line_(line) {}

  bool null() override { return builder_.null(*line_), true; }
  bool boolean(bool flag) override { return plain(flag ? "true" : "false"); }
  bool number_integer(number_integer_t number) override { return plain(std::to_string(number)); }
  bool number_unsigned(number_unsigned_t number) override { return plain(std::to_string(number)); }
  bool number_float(number_float_t, const string_t& text) override { return plain(text); }
  bool string(string_t& text) override { return builder_.scalar(text, true, *line_), true; }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return builder_.begin(Value::Kind::map, *line_), true; }
  bool key(string_t& text) override { return builder_.scalar(text, true, *line_), true; }
  bool end_object() override { return builder_.end(), true; }
  bool start_array(std::size_t) override { return builder_.begin(Value::Kind::list, *line_), true; }
  bool end_array() override { return builder_.end(), true; }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& reason) override {
    const JsonFault fault = find_json_fault(text_, position == 0 ? 0 : position - 1, reason.what());
    builder_.reject(static_cast<int>(fault.line), fmt::format("not valid JSON (column {}): {}", fault.column, fault.what));
  }

  Value take() { return builder_.take(); }

 private:
  bool plain(std::string text) { return builder_.scalar(std::move(text), false, *line_), true; }

  TreeBuilder builder_;
  std::string_view text_;
  const int* line_;
};

}  // namespace

Value parse_json(const std::string& text, std::string_view where) {
  int line = 1;
  JsonEvents events(where, text, &line);
  const CountingIterator begin(text.data(), &line), end(text.data() + text.size(), &line);
  nlohmann::json::sax_parse(begin, end, &events);
  return events.take();
}

}  // namespace qft::config
