#include "qft/core/json.h"

#include "qft/core/error.h"
#include "qft/core/repeated.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

namespace qft {

namespace {

/// Iterates over the bytes of a text and counts in `*line` the lines before the next byte.
struct LineCounter {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* at;
  std::ptrdiff_t* line;

  reference operator*() const { return *at; }
  LineCounter& operator++() {
    *line += *at == '\n';
    ++at;
    return *this;
  }
  LineCounter operator++(int) { return std::exchange(*this, {at + 1, line}); }
  friend bool operator==(const LineCounter& a, const LineCounter& b) { return a.at == b.at; }
};

/// Throws Error at the first key that its object already has.
class SingleKeys : public nlohmann::json_sax<nlohmann::json> {
 public:
  SingleKeys(const std::string& where, const std::ptrdiff_t& line) : where_(where), line_(line) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override {
    open_.emplace_back();
    return true;
  }
  bool key(string_t& name) override {
    const auto [known, fresh] = open_.back().emplace(name, line_);
    if (!fresh)
      fail("{}:{}: the key '{}' appears twice in one object, first on line {}: remove one", where_, line_, name, known->second);
    return true;
  }
  bool end_object() override {
    open_.pop_back();
    return true;
  }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) override { return false; }

 private:
  const std::string& where_;
  const std::ptrdiff_t& line_;
  std::vector<std::map<std::string, std::ptrdiff_t>> open_;  // keys of each open object, with their lines
};

}  // namespace

void require_single_keys(std::string_view text, const std::string& where) {
  std::ptrdiff_t line = 1;
  SingleKeys keys(where, line);
  nlohmann::json::sax_parse(LineCounter{text.data(), &line}, LineCounter{text.data() + text.size(), &line}, &keys);
}

std::string replace_invalid_utf8(std::string_view text) {
  const auto quoted = nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return nlohmann::json::parse(quoted).get<std::string>();
}

nlohmann::ordered_json json_number(double value) {
  if (std::isfinite(value)) return value;
  return fmt::format("{}", value);
}

template <class Json>
Json parse_json(std::string_view text, const std::string& where) {
  const auto limit = [&](int depth, typename Json::parse_event_t, Json&) {
    require(depth <= kMaxJsonDepth, "{} is nested more than {} deep", where, kMaxJsonDepth);
    return true;
  };
  try {
    return Json::parse(text, limit);
  } catch (const nlohmann::json::parse_error& e) {
    const JsonFault fault = find_json_fault(text, e.byte == 0 ? 0 : e.byte - 1, e.what());
    fail("{} is not valid JSON: line {}, column {}: {}", where, fault.line, fault.column, fault.what);
  } catch (const nlohmann::json::exception& e) {  // "[json.exception...] number overflow parsing '1e999'"
    const std::string_view reason = e.what();
    fail("{} is not valid JSON: {}", where, reason.substr(std::min(reason.find("] ") + 2, reason.size())));
  }
}

template nlohmann::json parse_json(std::string_view, const std::string&);
template nlohmann::ordered_json parse_json(std::string_view, const std::string&);

}  // namespace qft
