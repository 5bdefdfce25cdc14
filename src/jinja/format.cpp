// Python's two formatting languages: "%s" % values, and "{}".format(values).
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "methods.h"
#include "unicode.h"

namespace qft::jinja {
namespace {

constexpr std::int64_t kMaxWidth = 100'000;

/// [[fill]align][sign][#][0][width][,][.precision][type]
struct Spec {
  std::string fill = " ";
  char align = 0;
  char sign = '-';
  bool alternate = false;
  bool zeros = false;
  char group = 0;
  std::int64_t width = 0;
  std::int64_t precision = -1;
  char type = 0;
};

std::int64_t read_count(Runtime& rt, std::string_view text, std::size_t& at) {
  std::int64_t value = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    value = value * 10 + (text[at] - '0');
    if (value > kMaxWidth) rt.fail("a format with a width or precision above {} (the limit)", kMaxWidth);
  }
  return value;
}

// Returns printf's digits; their number is not known in advance.
std::string print_real(const char* form, int precision, double value) {
  std::string text(static_cast<std::size_t>(precision) + 400, '\0');
  text.resize(static_cast<std::size_t>(std::snprintf(text.data(), text.size(), form, precision, value)));
  return text;
}

std::string real_digits(double value, char type, std::int64_t precision, bool alternate) {
  const bool upper = type == 'E' || type == 'F' || type == 'G';
  if (!std::isfinite(value)) return std::isnan(value) ? (upper ? "NAN" : "nan") : (upper ? "INF" : "inf");
  std::string form = alternate ? "%#.*" : "%.*";
  form += type;
  return print_real(form.c_str(), static_cast<int>(precision), value);
}

std::string integer_digits(const Value& value, int base, bool upper) {
  BigInteger rest = value.is(Kind::big) ? value.as<BigObject>().value : BigInteger(value.as_integer());
  if (rest.is_negative()) rest = -rest;
  if (base == 10) return rest.to_string();
  if (rest.is_zero()) return "0";
  const char* const letters = upper ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string digits;
  while (!rest.is_zero()) {
    BigInteger quotient, digit;
    BigInteger::divide(rest, BigInteger(base), quotient, digit);
    digits += letters[*digit.to_int64()];
    rest = quotient;
  }
  std::reverse(digits.begin(), digits.end());
  return digits;
}

bool is_negative(const Value& value) {
  if (value.is(Kind::real)) return std::signbit(value.as_real()) && !std::isnan(value.as_real());
  return value.is(Kind::big) ? value.as<BigObject>().value.is_negative() : value.as_integer() < 0;
}

// Inserts separators into the integer part of digits.
std::string grouped(const std::string& digits, char separator, std::size_t every) {
  const std::size_t whole = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  std::string out;
  for (std::size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % every == 0) out += separator;
    out += digits[i];
  }
  return out + digits.substr(whole);
}

std::string place(Runtime& rt, std::string_view sign, std::string body, const Spec& spec, char by_default) {
  const char align = spec.align != 0 ? spec.align : by_default;
  if (align == '=')
    return std::string(sign) + pad_text(rt, body, spec.width - static_cast<std::int64_t>(sign.size()), spec.fill, 1);
  body.insert(0, sign);
  if (align == '^') {
    const auto size = static_cast<std::int64_t>(char_count(body));
    const std::int64_t all = std::max<std::int64_t>(spec.width - size, 0);
    return pad_text(rt, pad_text(rt, body, size + all / 2, spec.fill, 1), spec.width, spec.fill, -1);
  }
  return pad_text(rt, body, spec.width, spec.fill, align == '<' ? -1 : 1);
}

std::string sign_of(const Value& value, char wanted) {
  return is_negative(value) ? "-" : wanted == '+' ? "+" : wanted == ' ' ? " " : "";
}

Spec read_spec(Runtime& rt, std::string_view text) {
  Spec spec;
  std::size_t at = 0;
  const auto is_align = [&](std::size_t i) {
    return i < text.size() && std::string_view("<>=^").find(text[i]) != std::string_view::npos;
  };
  std::size_t second = 0;
  if (!text.empty()) next_char(text, second);
  if (second > 0 && is_align(second)) {
    spec.fill = text.substr(0, second);
    spec.align = text[second];
    at = second + 1;
  } else if (is_align(0)) {
    spec.align = text[0];
    at = 1;
  }
  const auto take = [&](std::string_view chars) -> char {
    return at < text.size() && chars.find(text[at]) != chars.npos ? text[at++] : '\0';
  };
  if (const char sign = take("+- ")) spec.sign = sign;
  if (take("z") != 0) rt.fail("'z' in a format is not implemented");
  spec.alternate = take("#") != 0;
  spec.zeros = take("0") != 0;
  if (spec.zeros) {
    if (spec.align == 0) spec.align = '=';
    if (second == 0 || !is_align(second)) spec.fill = "0";
  }
  spec.width = read_count(rt, text, at);
  spec.group = take(",_");
  if (take(".") != 0) {
    const std::size_t digits = at;
    spec.precision = read_count(rt, text, at);
    if (at == digits) rt.fail("a format without digits after '.': '{}'", text);
  }
  if (at < text.size()) spec.type = text[at++];
  if (at < text.size()) rt.fail("a format that Python does not have: '{}'", text);
  return spec;
}

std::string format_real(Runtime& rt, const Value& value, const Spec& spec) {
  double number = value.is(Kind::real) ? value.as_real() : *to_real(rt, value);
  char type = spec.type;
  std::int64_t precision = spec.precision < 0 ? 6 : spec.precision;
  if (type == '%') {
    number *= 100;
    type = 'f';
  }
  number = std::fabs(number);
  std::string body;
  if (type == 0 && spec.precision < 0) {
    body = python_repr(number);
  } else if (type == 0) {
    // Like 'g', with a digit after the point, and scientific one digit sooner.
    body = real_digits(number, 'g', std::max<std::int64_t>(precision, 1), false);
    int exponent = 0;
    if (number != 0 && std::isfinite(number)) {
      const std::string e = print_real("%.*e", static_cast<int>(std::max<std::int64_t>(precision, 1)) - 1, number);
      exponent = std::atoi(e.c_str() + e.find('e') + 1);
      if (exponent == std::max<std::int64_t>(precision, 1) - 1 && body.find('e') == body.npos && exponent > 0)
        rt.fail("this format of a float is not implemented: give its type, such as 'g'");
    }
    if (body.find_first_of(".en") == body.npos) body += ".0";
  } else {
    body =
        real_digits(number, type == 'n' ? 'g' : type,
                    type == 'g' || type == 'G' || type == 'n' ? std::max<std::int64_t>(precision, 1) : precision, spec.alternate);
  }
  if (spec.group != 0 && std::isfinite(number)) {
    if (spec.fill == "0" && spec.align == '=') rt.fail("a format with both separators and leading zeros is not implemented");
    body = grouped(body, spec.group, 3);
  }
  if (spec.type == '%') body += '%';
  return place(rt, sign_of(value, spec.sign), std::move(body), spec, '>');
}

std::string format_integer(Runtime& rt, const Value& value, const Spec& spec) {
  if (spec.precision >= 0) rt.fail("a precision in the format of an integer");
  if (spec.type == 'c') {
    const std::int64_t code = value.is(Kind::big) ? -1 : value.as_integer();
    if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) rt.fail("'c' needs the number of a character");
    std::string body;
    append_char(body, static_cast<char32_t>(code));
    return place(rt, "", std::move(body), spec, '>');
  }
  const int base = spec.type == 'x' || spec.type == 'X' ? 16 : spec.type == 'o' ? 8 : spec.type == 'b' ? 2 : 10;
  std::string body = integer_digits(value, base, spec.type == 'X');
  if (spec.group != 0) {
    if (spec.fill == "0" && spec.align == '=') rt.fail("a format with both separators and leading zeros is not implemented");
    body = grouped(body, spec.group, base == 10 ? 3 : 4);
  }
  std::string sign = sign_of(value, spec.sign);
  if (spec.alternate && base != 10) sign += std::string("0") + spec.type;
  return place(rt, sign, std::move(body), spec, '>');
}

/// Flags of one "%" item, as in printf.
struct Item {
  bool left = false, zeros = false, alternate = false;
  char sign = '-';
  std::int64_t width = 0, precision = -1;
};

class Percent {
 public:
  Percent(Runtime& rt, std::string_view form, const Value& args) : rt_(rt), form_(form), args_(args) {}

  std::string run() {
    std::string out;
    while (at_ < form_.size()) {
      const std::size_t percent = std::min(form_.find('%', at_), form_.size());
      out += form_.substr(at_, percent - at_);
      at_ = percent;
      if (at_ < form_.size()) out += item();
      rt_.check_memory(out.size());
      rt_.step();
    }
    const bool single = !args_.is(Kind::tuple);
    const bool mapping = args_.is_dict() || args_.is_list() || args_.is(Kind::range) || args_.is_undefined();
    if (single ? !used_ && !mapping : used_ < list_size(args_)) rt_.fail("'%': more values than the text '{}' has places", form_);
    return out;
  }

 private:
  Value next() {
    if (args_.is(Kind::tuple)) {
      if (used_ >= list_size(args_)) rt_.fail("'%': too few values for the text '{}'", form_);
      return list_at(rt_, args_, used_++);
    }
    if (used_++ > 0) rt_.fail("'%': too few values for the text '{}'", form_);
    return args_;
  }
  char peek() {
    if (at_ >= form_.size()) rt_.fail("'%': the text '{}' ends in the middle of a place", form_);
    return form_[at_];
  }
  std::int64_t count() {
    if (peek() != '*') return read_count(rt_, form_, at_);
    ++at_;
    const Value value = next();
    if (!value.is_integer() || value.as_integer() > kMaxWidth || value.as_integer() < -kMaxWidth)
      rt_.fail("'%': a width or precision that is not an integer, or above {} (the limit)", kMaxWidth);
    return value.as_integer();
  }

  std::string item() {
    ++at_;
    std::optional<Value> named;
    if (peek() == '(') {
      const std::size_t begin = ++at_;
      for (int open = 1; open > 0; ++at_) open += peek() == '(' ? 1 : peek() == ')' ? -1 : 0;
      if (!args_.is_dict()) rt_.fail("'%': names in the text need a dict, not {}", object_name(args_));
      const std::string key(form_.substr(begin, at_ - begin - 1));
      named = dict_find(rt_, args_, std::string_view(key));
      if (!named) rt_.fail("'%': the dict has no '{}'", key);
      used_ = 1;
    }
    Item flags;
    for (; std::string_view("-+ 0#").find(peek()) != std::string_view::npos; ++at_) {
      const char flag = form_[at_];
      flags.left = flags.left || flag == '-';
      flags.zeros = flags.zeros || flag == '0';
      flags.alternate = flags.alternate || flag == '#';
      if (flag == '+' || (flag == ' ' && flags.sign != '+')) flags.sign = flag;
    }
    flags.width = count();
    if (flags.width < 0) {
      flags.left = true;
      flags.width = -flags.width;
    }
    if (peek() == '.') {
      ++at_;
      flags.precision = std::max<std::int64_t>(count(), 0);
    }
    while (std::string_view("hlL").find(peek()) != std::string_view::npos) ++at_;
    const char type = form_[at_++];
    if (type == '%') return "%";
    return convert(type, flags, named ? *named : next());
  }

  std::string convert(char type, const Item& flags, const Value& value) {
    Spec spec;
    spec.width = flags.width;
    spec.align = flags.left ? '<' : '>';
    if (type == 's' || type == 'r' || type == 'a') {
      std::string text;
      if (type == 's')
        append_text(rt_, value, text);
      else
        append_repr(rt_, value, text);
      if (type == 'a' && !is_ascii(text)) rt_.fail("'%a' of characters outside ASCII is not implemented");
      if (flags.precision >= 0) text = char_slice(text, 0, static_cast<std::size_t>(flags.precision));
      return place(rt_, "", std::move(text), spec, '>');
    }
    if (type == 'c' && value.is_text()) {
      if (char_count(value.as_text()) != 1) rt_.fail("'%c' needs one character");
      return place(rt_, "", std::string(value.as_text()), spec, '>');
    }
    refuse_undefined(rt_, value);
    if (!value.is_number()) rt_.fail("'%{}' needs a number, not {}", type, object_name(value));
    if (flags.zeros && !flags.left) {
      spec.align = '=';
      spec.fill = "0";
    }
    spec.sign = flags.sign;
    spec.alternate = flags.alternate;
    if (std::string_view("eEfFgG").find(type) != std::string_view::npos) {
      spec.type = type;
      spec.precision = flags.precision;
      if (value.is(Kind::real) && !std::isfinite(value.as_real()) && spec.align == '=') spec.align = '=';
      return format_real(rt_, value, spec);
    }
    return whole(type, flags, spec, value);
  }

  std::string whole(char type, const Item& flags, Spec spec, const Value& value) {
    Value number = value;
    if (std::string_view("diu").find(type) != std::string_view::npos) {
      if (value.is(Kind::real)) {
        if (!std::isfinite(value.as_real())) rt_.fail("'%{}' of a float that is infinite or NaN", type);
        number = rt_.big(BigInteger::truncate(value.as_real()));
      }
    } else if (value.is(Kind::real) || std::string_view("xXoc").find(type) == std::string_view::npos) {
      rt_.fail("'%{}' of {}", type, object_name(value));
    }
    if (type == 'c') {
      spec.type = 'c';
      return format_integer(rt_, number, spec);
    }
    const int base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : 10;
    std::string body = integer_digits(number, base, type == 'X');
    if (flags.precision > static_cast<std::int64_t>(body.size())) body = pad_text(rt_, body, flags.precision, "0", 1);
    std::string sign = sign_of(number, spec.sign);
    if (spec.alternate && base != 10) sign += std::string("0") + type;
    return place(rt_, sign, std::move(body), spec, '>');
  }

  Runtime& rt_;
  const std::string_view form_;
  const Value& args_;
  std::size_t at_ = 0;
  std::size_t used_ = 0;
};

class Braces {
 public:
  Braces(Runtime& rt, CallArgs& args) : rt_(rt), args_(args) {}

  std::string run(std::string_view form, int level) {
    if (level > 2) rt_.fail("format(): braces nested too deeply");
    std::string out;
    for (std::size_t at = 0; at < form.size();) {
      const char c = form[at++];
      if (c != '{' && c != '}') {
        out += c;
      } else if (at < form.size() && form[at] == c) {
        out += c;
        ++at;
      } else if (c == '}') {
        rt_.fail("format(): a single '}}' in '{}'", form);
      } else {
        out += field(form, at, level);
      }
      rt_.check_memory(out.size());
    }
    return out;
  }

 private:
  std::string field(std::string_view form, std::size_t& at, int level) {
    rt_.step();
    const std::size_t begin = at;
    for (int open = 1; open > 0; ++at) {
      if (at >= form.size()) rt_.fail("format(): '{{' without '}}' in '{}'", form);
      open += form[at] == '{' ? 1 : form[at] == '}' ? -1 : 0;
    }
    std::string_view inside = form.substr(begin, at - begin - 1);
    std::size_t name_end = 0;
    for (bool index = false; name_end < inside.size() && (index || (inside[name_end] != '!' && inside[name_end] != ':'));
         ++name_end) {
      if (inside[name_end] == '[') index = true;
      if (inside[name_end] == ']') index = false;
    }
    const std::string_view name = inside.substr(0, name_end);
    inside.remove_prefix(name_end);
    char conversion = 0;
    if (inside.starts_with('!')) {
      if (inside.size() < 2 || (inside.size() > 2 && inside[2] != ':'))
        rt_.fail("format(): a conversion that Python does not have");
      conversion = inside[1];
      inside.remove_prefix(2);
    }
    if (inside.starts_with(':')) inside.remove_prefix(1);
    Value value = find(name);
    const std::string spec = run(inside, level + 1);
    if (conversion == 's') {
      value = to_text(rt_, value);
    } else if (conversion == 'r') {
      std::string text;
      append_repr(rt_, value, text);
      value = rt_.text(std::move(text));
    } else if (conversion != 0) {
      rt_.fail("format(): the conversion '{}' is not implemented", conversion);
    }
    return format_value(rt_, value, spec);
  }

  Value find(std::string_view name) {
    std::size_t end = std::min(name.find_first_of(".["), name.size());
    Value value = first(name.substr(0, end));
    while (end < name.size()) {
      const bool item = name[end] == '[';
      const std::size_t begin = end + 1;
      end = item ? name.find(']', begin) : std::min(name.find_first_of(".[", begin), name.size());
      if (end == name.npos || begin == end) rt_.fail("format(): an empty attribute, or '[' without ']'");
      const std::string_view part = name.substr(begin, end - begin);
      if (item) {
        const std::optional<Value> number = digits(part);
        value = get_item(rt_, value, number ? *number : rt_.text(std::string(part)));
        if (++end < name.size() && name[end] != '.' && name[end] != '[') rt_.fail("format(): found '{}' after ']'", name[end]);
      } else {
        const Value key = rt_.text(std::string(part));
        value = get_attribute(rt_, value, key.as_text());
      }
    }
    return value;
  }

  Value first(std::string_view name) {
    if (name.empty()) {
      if (numbered_) rt_.fail("format(): both '{{}}' and numbers");
      automatic_ = true;
      return at(next_++);
    }
    if (const std::optional<Value> number = digits(name)) {
      if (automatic_) rt_.fail("format(): both '{{}}' and numbers");
      numbered_ = true;
      return at(static_cast<std::size_t>(number->as_integer()));
    }
    for (const auto& [key, value] : args_.named)
      if (key.as_text() == name) return value;
    rt_.fail("format(): unknown argument '{}'", name);
  }

  Value at(std::size_t index) {
    if (index >= args_.positional.size()) rt_.fail("format(): unknown argument {}", index);
    return args_.positional[index];
  }

  static std::optional<Value> digits(std::string_view text) {
    if (text.empty() || text.size() > 9 || text.find_first_not_of("0123456789") != text.npos) return std::nullopt;
    std::int64_t value = 0;
    for (const char c : text) value = value * 10 + (c - '0');
    return Value::integer(value);
  }

  Runtime& rt_;
  CallArgs& args_;
  std::size_t next_ = 0;
  bool automatic_ = false, numbered_ = false;
};

}  // namespace

std::string format_value(Runtime& rt, const Value& value, std::string_view text) {
  if (text.empty()) {
    std::string out;
    append_text(rt, value, out);
    return out;
  }
  const Spec spec = read_spec(rt, text);
  const auto wrong = [&] { rt.fail("the format '{}' cannot be used for {}", text, object_name(value)); };
  if (value.is_text()) {
    if ((spec.type != 0 && spec.type != 's') || spec.sign != '-' || spec.alternate || spec.group != 0 ||
        (spec.align == '=' && !spec.zeros))
      wrong();
    std::string body(value.as_text());
    if (spec.precision >= 0) body = char_slice(body, 0, static_cast<std::size_t>(spec.precision));
    Spec placed = spec;
    if (spec.align == '=') placed.align = '<';
    return place(rt, "", std::move(body), placed, '<');
  }
  if (!value.is_number()) wrong();
  const bool real_type = spec.type != 0 && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos;
  if (value.is(Kind::real) || real_type) {
    if (spec.type != 0 && !real_type && spec.type != 'n') wrong();
    return format_real(rt, value, spec);
  }
  if (spec.type == 0 && value.is(Kind::boolean)) {
    // A bool uses the formats of integers.
  }
  if (spec.type != 0 && std::string_view("bcdnoxX").find(spec.type) == std::string_view::npos) wrong();
  return format_integer(rt, value, spec);
}

Value format_percent(Runtime& rt, const Value& form, const Value& args) {
  if (form.is_markup()) rt.fail("'%' of a text that is marked as safe is not implemented");
  return rt.text(Percent(rt, form.as_text(), args).run());
}

Value format_braces(Runtime& rt, std::string_view form, CallArgs& args) {
  return rt.text(Braces(rt, args).run(form, 0));
}

}  // namespace qft::jinja
