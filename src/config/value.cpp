#include "qft/config/value.h"

#include "qft/core/error.h"
#include "qft/core/file_ending.h"
#include "qft/core/json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <system_error>

#include "tree_builder.h"

namespace qft::config {
namespace {

constexpr std::uintmax_t kMaxBytes = 4 << 20;  // limit for files that people write
constexpr std::size_t kMaxDescribed = 200;

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// YAML 1.1 allows underscores between digits and a leading plus; std::from_chars accepts neither.
std::string plain_number(std::string_view text) {
  std::string number(text.substr(!text.empty() && text.front() == '+'));
  if (!number.empty() && number.front() != '_' && number.back() != '_') std::erase(number, '_');
  return number;
}

template <class Number, class... Format>
std::optional<Number> parse_number(std::string_view text, Format... format) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, number, format...);
  if (text.empty() || error != std::errc() || last != end) return std::nullopt;
  return number;
}

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

std::string read_text(const std::filesystem::path& path) {
  std::error_code code;
  if (std::filesystem::is_directory(path, code)) fail_config("{} is a folder, not a file", path.string());
  if (!std::filesystem::exists(path, code)) fail_config("cannot read {}: there is no such file", path.string());
  if (!std::filesystem::is_regular_file(path, code)) {
    fail_config("{} is a pipe or a device, which qft does not read: write the text to a file", path.string());
  }
  if (const auto bytes = std::filesystem::file_size(path, code); !code && bytes > kMaxBytes) {
    fail_config("{} has {} bytes, but the limit is {}: is it the right file?", path.string(), bytes, kMaxBytes);
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) fail_config("cannot read {}: no permission", path.string());
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (in.bad()) fail_config("cannot read {}: the read failed half-way", path.string());
  if (const std::string fault = describe_non_text(text, path); !fault.empty()) fail_config("{}", fault);
  return text;
}

void require_utf8(const std::string& text, std::string_view where) {
  try {
    nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    fail_config("{}: not valid UTF-8: save the text as UTF-8", where);
  }
}

Value parse_file(const std::filesystem::path& path) {
  const std::string text = read_text(path);
  require_utf8(text, path.string());
  return is_json_file(path) ? parse_json(text, path.string()) : parse_yaml(text, path.string());
}

std::optional<bool> as_bool(const Value& value) {
  if (value.kind != Value::Kind::scalar || value.quoted) return std::nullopt;
  if (is_one_of(value.text, {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"})) return true;
  if (is_one_of(value.text, {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"})) return false;
  return std::nullopt;
}

std::optional<std::int64_t> as_int(const Value& value) {
  if (value.kind != Value::Kind::scalar || value.quoted) return std::nullopt;
  const std::string number = plain_number(value.text);
  // 010 is 8 in YAML 1.1 and 10 in YAML 1.2: reject it as an integer.
  const std::size_t first = number.starts_with('-');
  if (number.size() > first + 1 && number[first] == '0') return std::nullopt;
  return parse_number<std::int64_t>(number);
}

std::optional<double> as_double(const Value& value) {
  if (value.kind != Value::Kind::scalar) return std::nullopt;
  const std::string number = plain_number(value.text);
  const auto parsed = parse_number<double>(number, std::chars_format::general);
  return parsed && std::isfinite(*parsed) ? parsed : std::nullopt;
}

nlohmann::json as_json(const Value& value) {
  switch (value.kind) {
    case Value::Kind::null:
      return nullptr;
    case Value::Kind::list: {
      nlohmann::json list = nlohmann::json::array();
      for (const Value& item : value.items) list.push_back(as_json(item));
      return list;
    }
    case Value::Kind::map: {
      nlohmann::json map = nlohmann::json::object();
      for (const auto& [key, entry] : value.entries) map[key] = as_json(entry);
      return map;
    }
    case Value::Kind::scalar:
      break;
  }
  if (const auto flag = as_bool(value)) return *flag;
  if (const auto number = as_int(value)) return *number;
  if (!value.quoted) {
    if (const auto number = as_double(value)) return *number;
  }
  return value.text;
}

std::string describe(const Value& value) {
  switch (value.kind) {
    case Value::Kind::null:
      return "null";
    case Value::Kind::list:
      return "a list";
    case Value::Kind::map:
      return "a mapping";
    case Value::Kind::scalar:
      break;
  }
  std::size_t end = std::min(value.text.size(), kMaxDescribed);
  while (end < value.text.size() && end > 0 && (value.text[end] & 0xC0) == 0x80) --end;  // inside a UTF-8 character
  return fmt::format("{}'{}{}'", value.quoted ? "the text " : "", value.text.substr(0, end),
                     end < value.text.size() ? " ..." : "");
}

Value parse_json(const std::string& text, std::string_view where) {
  int line = 1;
  JsonEvents events(where, text, &line);
  const CountingIterator begin(text.data(), &line), end(text.data() + text.size(), &line);
  nlohmann::json::sax_parse(begin, end, &events);
  return events.take();
}

}  // namespace qft::config
