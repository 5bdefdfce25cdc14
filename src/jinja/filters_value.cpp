// Filters for numbers and for any value.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "filters.h"
#include "unicode.h"

namespace qft::jinja {
namespace {

// Normalises a text for int() and float(): ASCII digits, no blanks around.
std::string plain_digits(std::string_view text) {
  std::string out;
  text = strip(text, nullptr, true, true);
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_char(text, at);
    const int digit = digit_value(c);
    if (digit >= 0)
      out += static_cast<char>('0' + digit);
    else
      append_char(out, c);
  }
  return out;
}

// Removes single "_" between digits; returns false if they are anywhere else.
bool remove_underscores(std::string& text) {
  const auto digit = [&](std::size_t i) { return i < text.size() && std::isalnum(static_cast<unsigned char>(text[i])) != 0; };
  for (std::size_t i = 0; i < text.size(); ++i)
    if (text[i] == '_' && (i == 0 || !digit(i - 1) || !digit(i + 1))) return false;
  std::erase(text, '_');
  return true;
}

}  // namespace

std::optional<Value> read_integer(Runtime& rt, std::string_view text, std::int64_t base) {
  if (base != 0 && (base < 2 || base > 36)) return std::nullopt;
  rt.work(text.size());
  std::string digits = plain_digits(text);
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.erase(0, 1);
  if (digits.size() > 1 && digits[0] == '0') {
    const char letter = static_cast<char>(digits[1] | 0x20);
    const int named = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (named != 0 && (base == 0 || base == named)) {
      digits.erase(0, 2);
      if (digits.starts_with('_')) digits.erase(0, 1);
      base = named;
    } else if (base == 0 && digits.find_first_not_of("0_") != digits.npos) {
      return std::nullopt;
    }
  }
  if (base == 0) base = 10;
  constexpr std::size_t kMaxDigits = 4300;
  if (digits.empty() || !remove_underscores(digits) || digits.size() > kMaxDigits) return std::nullopt;
  for (const char c : digits) {
    const int value = c >= '0' && c <= '9'                               ? c - '0'
                      : std::isalpha(static_cast<unsigned char>(c)) != 0 ? (c | 0x20) - 'a' + 10
                                                                         : 99;
    if (value >= base) return std::nullopt;
  }
  std::int64_t small = 0;
  if (negative) digits.insert(0, "-");
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), small, static_cast<int>(base));
  if (error == std::errc()) return Value::integer(small);
  if (base == 10) return rt.big(BigInteger::parse(digits));
  BigInteger value;
  for (const char c : digits) {
    if (c == '-') continue;
    value = value * BigInteger(base) + BigInteger(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    rt.step(1 + value.size());
  }
  return rt.big(negative ? -value : std::move(value));
}

std::optional<double> read_real(std::string_view text) {
  std::string digits = plain_digits(text);
  std::string lower = change_case(digits, Case::lower);
  const std::string_view word = std::string_view(lower).substr(lower.starts_with('-') || lower.starts_with('+') ? 1 : 0);
  const bool named = word == "nan" || word == "inf" || word == "infinity";
  if (!named && (word.empty() || word.find_first_not_of("0123456789.e+-_") != word.npos || !remove_underscores(lower)))
    return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(lower.c_str(), &end);
  return end == lower.c_str() + lower.size() ? std::optional(value) : std::nullopt;
}

std::optional<double> to_real(Runtime& rt, const Value& value) {
  if (value.is(Kind::real)) return value.as_real();
  if (value.is_integer()) return static_cast<double>(value.as_integer());
  if (value.is(Kind::big)) {
    const double real = value.as<BigObject>().value.to_double();
    if (std::isinf(real)) rt.fail("an integer is too large for a float");
    return real;
  }
  if (value.is_text()) return read_real(value.as_text());
  refuse_undefined(rt, value);
  return std::nullopt;
}

namespace filters {

Value absolute(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "abs", args, {});
  refuse_undefined(rt, self);
  if (!self.is_number()) rt.fail("abs: found {}, expected a number", object_name(self));
  if (self.is(Kind::real)) return Value::real(std::fabs(self.as_real()));
  const bool below = self.is(Kind::big) ? self.as<BigObject>().value.is_negative() : self.as_integer() < 0;
  return negative(rt, self, below);
}

Value attribute(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "attr", args, {"name"}, 1);
  const std::string_view name = bound.text(0);
  // An empty dict hides the members, to which attributes otherwise fall back.
  if (self.is_dict() && find_method(self, name) == nullptr) {
    CallArgs none;
    const Value empty(rt.make<DictObject>(0));
    const Value found = get_attribute(rt, empty, name);
    return found.is_undefined() ? rt.undefined(found.reason(), name, self.kind()) : found;
  }
  return get_attribute(rt, self, name);
}

Value default_value(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "default", args, {"default_value", "boolean"});
  if (self.is_undefined() || (bound.flag(1) && !truth(rt, self))) return bound.value(0, Value::view({}));
  return self;
}

Value to_float(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "float", args, {"default"});
  const std::optional<double> value = to_real(rt, self);
  return value ? Value::real(*value) : bound.value(0, Value::real(0));
}

Value to_integer(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "int", args, {"default", "base"});
  refuse_undefined(rt, self);
  if (self.is_integer()) return Value::integer(self.as_integer());
  if (self.is(Kind::big)) return self;
  if (self.is_text())
    if (std::optional<Value> value = read_integer(rt, self.as_text(), bound.integer(1, 10))) return std::move(*value);
  std::optional<double> real = self.is(Kind::real) || self.is_text() ? to_real(rt, self) : std::nullopt;
  if (self.is(Kind::real) && std::isinf(*real)) rt.fail("int: an infinite float");
  if (!real || !std::isfinite(*real)) return bound.value(0, Value::integer(0));
  return rt.big(BigInteger::truncate(*real));
}

namespace {

// Python's round(value, digits): rounds correctly, by the value's decimal digits.
double round_real(double value, std::int64_t digits) {
  if (!std::isfinite(value)) return value;
  if (digits > 323) return value;
  if (digits < -308) return std::copysign(0.0, value);
  if (digits >= 0) return std::strtod(fmt::format("{:.{}f}", value, digits).c_str(), nullptr);
  const double power = std::pow(10.0, static_cast<double>(-digits));
  return std::nearbyint(value / power) * power;
}

}  // namespace

Value round(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "round", args, {"precision", "method"});
  const std::int64_t digits = bound.integer(0, 0);
  const std::string_view method = bound[1] != nullptr && bound[1]->is_text() ? bound[1]->as_text()
                                  : bound[1] == nullptr                      ? "common"
                                                                             : "";
  if (method != "common" && method != "ceil" && method != "floor")
    rt.fail("round: the method must be 'common', 'ceil' or 'floor'");
  refuse_undefined(rt, self);
  if (!self.is_number()) rt.fail("round: found {}, expected a number", object_name(self));
  if (method == "common") {
    if (self.is(Kind::real)) return Value::real(round_real(self.as_real(), digits));
    if (digits >= 0) return negative(rt, self, false);
    rt.fail("round: an integer to a negative precision is not implemented");
  }
  const Value power = binary(rt, ExprKind::power, Value::integer(10), Value::integer(digits));
  const Value scaled = binary(rt, ExprKind::multiply, self, power);
  const double real = *to_real(rt, scaled);
  if (!std::isfinite(real)) rt.fail("round: the float is infinite or NaN");
  const Value whole =
      scaled.is(Kind::real) ? rt.big(BigInteger::truncate(method == "ceil" ? std::ceil(real) : std::floor(real))) : scaled;
  return binary(rt, ExprKind::divide, whole, power);
}

}  // namespace filters
}  // namespace qft::jinja
