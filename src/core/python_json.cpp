#include "qft/core/python_json.h"

#include "qft/core/error.h"
#include "qft/core/json.h"
#include "qft/core/json_text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <vector>

namespace qft {
namespace {

constexpr std::string_view kQuote = "\"\\u0000";  // marks a number that only Python has

// Returns Python's form of a number that JSON or 64 bits cannot hold; "" for any other word.
std::string python_number(std::string_view word) {
  constexpr std::string_view kDigits = "0123456789";
  if (word == "NaN" || word == "Infinity" || word == "-Infinity") return std::string(word);
  const bool negative = word.starts_with('-');
  const std::string_view digits = word.substr(negative ? 1 : 0);
  if (digits.empty() || kDigits.find(digits.front()) == kDigits.npos) return {};
  if (digits.find_first_not_of(kDigits) == digits.npos)
    return digits.size() > 18 && digits.front() != '0' ? std::string(word) : std::string();
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  const bool overflows = error == std::errc::result_out_of_range && end == word.data() + word.size() &&
                         digits.find("e-") == digits.npos && digits.find("E-") == digits.npos;
  return !overflows ? std::string() : negative ? "-Infinity" : "Infinity";
}

// Builds the value like nlohmann's handler, but keeps the digits of integers above 64 bits.
class TreeBuilder : public nlohmann::json_sax<Json> {
 public:
  explicit TreeBuilder(std::string_view what) : what_(what) {}

  Json take() { return std::move(root_); }
  /// Position and reason of the parser's error.
  std::size_t fault_at() const { return fault_at_; }
  const std::string& reason() const { return reason_; }

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t& digits) override {
    if (digits.find_first_of(".eE") != digits.npos) return put(value);
    return put(Json::binary({digits.begin(), digits.end()}));
  }
  bool string(string_t& value) override {
    if (is_quoted_number(value)) return put(Json::binary({value.begin() + 1, value.end()}));
    if (const std::string_view reason = unreadable_reason(value); !reason.empty())
      fail("{}: {}: store it as texts", what_, reason);
    return put(std::move(value));
  }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  // Appends without a search: duplicates are checked once, when the object ends.
  bool key(string_t& value) override {
    Members& members = open_.back()->get_ref<Json::object_t&>();
    slot_ = &members.emplace_back(std::move(value), Json()).second;
    return true;
  }
  bool end_object() override {
    const Members& members = open_.back()->get_ref<const Json::object_t&>();
    const auto twice = find_repeated(members, [](const auto& member) { return std::string_view(member.first); });
    if (twice)
      fail("{}: {}", what_,
           describe_repeated(path(), members[twice->first].first, shown(members[twice->first].second),
                             shown(members[twice->second].second)));
    return close();
  }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& reason) override {
    fault_at_ = position - 1;  // the last byte read
    reason_ = reason.what();
    return false;
  }

 private:
  Json* place(Json&& value) {
    if (open_.empty()) return &(root_ = std::move(value));
    Json& parent = *open_.back();
    if (!parent.is_array()) return &(*slot_ = std::move(value));
    parent.push_back(std::move(value));
    return &parent.back();
  }
  bool put(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json&& empty) {
    require(open_.size() < kMaxRecordDepth, "{}: nested more than {} deep", what_, kMaxRecordDepth);
    open_.push_back(place(std::move(empty)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  using Members = std::vector<Json::object_t::value_type>;  // base class of object_t

  // Returns the path of the innermost open value: "tools[0].function".
  std::string path() const {
    std::string text;
    for (std::size_t i = 0; i + 1 < open_.size(); ++i) {
      const Json& parent = *open_[i];
      if (parent.is_array())
        text += fmt::format("[{}]", parent.size() - 1);
      else
        text += (text.empty() ? "" : ".") + parent.get_ref<const Json::object_t&>().back().first;
    }
    return text;
  }
  static std::string shown(const Json& value) { return shortened(dump_python_json(value)); }

  std::string_view what_;
  Json root_;
  std::vector<Json*> open_;  // a parent never moves while one of its children is open
  Json* slot_ = nullptr;     // place for the value of the key just read
  std::size_t fault_at_ = 0;
  std::string reason_;
};

void write_string(std::string_view text, std::string& out) {
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20)
          fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c));
        else
          out += c;
    }
  }
  out += '"';
}

class Writer {
 public:
  Writer(std::string& out, int indent) : out_(out), indent_(indent) {}

  void write(const Json& value, int depth) {
    switch (value.type()) {
      case Json::value_t::object:
        return write_object(value, depth);
      case Json::value_t::array:
        return write_array(value, depth);
      case Json::value_t::string:
        return write_string(value.get_ref<const std::string&>(), out_);
      case Json::value_t::number_float:
        out_ += python_float(value.get<double>());
        return;
      case Json::value_t::binary:
        out_.append(value.get_binary().begin(), value.get_binary().end());
        return;
      default:
        out_ += value.dump();
    }
  }

 private:
  void write_object(const Json& value, int depth) {
    if (value.empty()) {
      out_ += "{}";
      return;
    }
    const char* separator = "{";
    for (const auto& [key, member] : value.items()) {
      out_ += separator;
      new_line(depth + 1);
      write_string(key, out_);
      out_ += ": ";
      write(member, depth + 1);
      separator = indent_ > 0 ? "," : ", ";
    }
    new_line(depth);
    out_ += '}';
  }
  void write_array(const Json& value, int depth) {
    if (value.empty()) {
      out_ += "[]";
      return;
    }
    const char* separator = "[";
    for (const Json& item : value) {
      out_ += separator;
      new_line(depth + 1);
      write(item, depth + 1);
      separator = indent_ > 0 ? "," : ", ";
    }
    new_line(depth);
    out_ += ']';
  }
  void new_line(int depth) {
    if (indent_ <= 0) return;
    out_ += '\n';
    out_.append(static_cast<std::size_t>(depth) * static_cast<std::size_t>(indent_), ' ');
  }

  std::string& out_;
  int indent_;
};

// Returns the number of bytes that quote_python_numbers() inserted before byte `end` of its result.
std::size_t added_before(std::string_view quoted, std::size_t end) {
  std::size_t bytes = 0;
  for (std::size_t at = quoted.find(kQuote); at < end; at = quoted.find(kQuote, at + 1)) bytes += kQuote.size() + 1;
  return bytes;
}

}  // namespace

Json parse_python_json(std::string_view text, std::string_view what) {
  TreeBuilder builder(what);
  if (Json::sax_parse(text.begin(), text.end(), &builder)) return builder.take();
  const std::string quoted = quote_python_numbers(text);
  TreeBuilder second(what);
  if (quoted != text && Json::sax_parse(quoted.begin(), quoted.end(), &second)) return second.take();
  const TreeBuilder& last = quoted == text ? builder : second;
  const std::size_t at = last.fault_at() - added_before(quoted, last.fault_at());
  const JsonFault fault = find_json_fault(text, at, last.reason());
  fail("{}: invalid JSON at byte {}: {}", what, fault.at + 1, fault.what);
}

bool is_quoted_number(std::string_view text) {
  return text.size() > 1 && text.front() == '\0' && python_number(text.substr(1)) == text.substr(1);
}

std::string quote_python_numbers(std::string_view text) {
  std::string quoted;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i + 1;
    if (text[i] == '"') {
      while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
      end = std::min(end + 1, text.size());
    } else if (text[i] == '-' || std::isalnum(static_cast<unsigned char>(text[i]))) {
      while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) ||
                                   std::string_view("+-.").find(text[end]) != std::string_view::npos))
        ++end;
      if (const std::string number = python_number(text.substr(i, end - i)); !number.empty()) {
        quoted.append(kQuote).append(number).append("\"");
        i = end;
        continue;
      }
    }
    quoted.append(text.substr(i, end - i));
    i = end;
  }
  return quoted;
}

std::string dump_python_json(const Json& value, int indent) {
  std::string out;
  Writer(out, indent).write(value, 0);
  return out;
}

std::string python_float(double value) {
  if (!std::isfinite(value)) return std::isnan(value) ? "NaN" : value < 0 ? "-Infinity" : "Infinity";
  // Shortest digits that round-trip, in Python's notation: scientific below 1e-4 and from 1e16 on.
  std::array<char, 32> buffer;
  const char* end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific).ptr;
  const std::string_view text(buffer.data(), static_cast<std::size_t>(end - buffer.data()));
  const std::size_t e = text.find('e');
  int exponent = 0;
  const char* exponent_begin = text.data() + e + 1 + (text[e + 1] == '+');
  std::from_chars(exponent_begin, end, exponent);
  if (exponent < -4 || exponent >= 16) return std::string(text);
  end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed).ptr;
  std::string fixed(buffer.data(), static_cast<std::size_t>(end - buffer.data()));
  return fixed.find('.') == fixed.npos ? fixed + ".0" : fixed;
}

}  // namespace qft
