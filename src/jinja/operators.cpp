// Truth, equality, order, hashes and arithmetic, as in Python.
#include <cmath>
#include <functional>
#include <limits>

#include "runtime.h"
#include "unicode.h"

namespace qft::jinja {
namespace {

BigInteger to_big(const Value& value) {
  return value.is(Kind::big) ? value.as<BigObject>().value : BigInteger(value.as_integer());
}

double to_real(Runtime& rt, const Value& value) {
  if (value.is(Kind::real)) return value.as_real();
  if (value.is_integer()) return static_cast<double>(value.as_integer());
  const double real = value.as<BigObject>().value.to_double();
  if (std::isinf(real)) rt.fail("an integer is too large for a float");
  return real;
}

// Returns the order of two numbers: -1, 0, 1, or 2 if one is NaN.
int compare_numbers(const Value& a, const Value& b) {
  if (a.is_integer() && b.is_integer()) return a.as_integer() < b.as_integer() ? -1 : a.as_integer() > b.as_integer() ? 1 : 0;
  if (!a.is(Kind::real) && !b.is(Kind::real)) return BigInteger::compare(to_big(a), to_big(b));
  if (a.is(Kind::real) && b.is(Kind::real)) {
    const double x = a.as_real(), y = b.as_real();
    return std::isnan(x) || std::isnan(y) ? 2 : x < y ? -1 : x > y ? 1 : 0;
  }
  if (b.is(Kind::real)) {
    const int order = compare_numbers(b, a);
    return order == 2 ? 2 : -order;
  }
  // Compare a float and an integer exactly: first the float's integer part, then its fraction.
  const double x = a.as_real();
  if (std::isnan(x)) return 2;
  if (std::isinf(x)) return x < 0 ? -1 : 1;
  const double whole = std::trunc(x);
  const int order = BigInteger::compare(BigInteger::truncate(whole), to_big(b));
  return order != 0 ? order : x > whole ? 1 : x < whole ? -1 : 0;
}

bool equal_items(Runtime& rt, const Value& a, const Value& b) {
  const std::size_t count = list_size(a);
  if (count != list_size(b)) return false;
  for (std::size_t i = 0; i < count; ++i) {
    const Value x = list_at(rt, a, i), y = list_at(rt, b, i);
    if (!x.is_same(y) && !equal(rt, x, y)) return false;
  }
  return true;
}

bool equal_dicts(Runtime& rt, const Value& a, const Value& b) {
  if (dict_size(a) != dict_size(b)) return false;
  for (std::size_t i = 0; i < dict_size(a); ++i) {
    const auto [key, value] = dict_at(rt, a, i);
    const std::optional<Value> other = dict_find(rt, b, key);
    if (!other || (!value.is_same(*other) && !equal(rt, value, *other))) return false;
  }
  return true;
}

std::string_view op_name(ExprKind op) {
  switch (op) {
    case ExprKind::add:
      return "+";
    case ExprKind::subtract:
      return "-";
    case ExprKind::multiply:
      return "*";
    case ExprKind::divide:
      return "/";
    case ExprKind::floor_divide:
      return "//";
    case ExprKind::modulo:
      return "%";
    default:
      return "**";
  }
}

std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  const std::int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

double float_modulo(double a, double b) {
  double rest = std::fmod(a, b);
  if (rest != 0) {
    if ((b < 0) != (rest < 0)) rest += b;
  } else {
    rest = std::copysign(0.0, b);
  }
  return rest;
}

double float_floor_divide(double a, double b) {
  const double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double whole = std::floor(quotient);
  return quotient - whole > 0.5 ? whole + 1 : whole;
}

Value float_power(Runtime& rt, double a, double b) {
  if (a == 0 && b < 0) rt.fail("0.0 cannot be raised to a negative power");
  if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b)) rt.fail("complex numbers are not implemented");
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) rt.fail("the result of '**' is too large for a float");
  return Value::real(result);
}

Value integer_power(Runtime& rt, const Value& a, const Value& b) {
  const std::optional<std::int64_t> power = to_big(b).to_int64();
  if (power && *power < 0) {
    if (to_big(a).is_zero()) rt.fail("0 cannot be raised to a negative power");
    return float_power(rt, to_real(rt, a), to_real(rt, b));
  }
  BigInteger base = to_big(a), result(1);
  if (base.is_zero() || BigInteger::compare(base, result) == 0)
    return power && *power == 0 ? Value::integer(1) : rt.big(std::move(base));
  if (BigInteger::compare(base, BigInteger(-1)) == 0) {
    BigInteger half, odd;
    BigInteger::divide(to_big(b), BigInteger(2), half, odd);
    return Value::integer(odd.is_zero() ? 1 : -1);
  }
  constexpr std::int64_t kMaxPower = 1 << 17;
  if (!power || *power > kMaxPower) rt.fail("an integer of too many digits (a power above {})", kMaxPower);
  for (std::int64_t rest = *power; rest > 0; rest >>= 1) {
    if ((rest & 1) != 0) result = result * base;
    if (rest > 1) base = base * base;
    rt.step(1 + base.size() * base.size() / 16 + result.size());
    if (base.size() > 4300 || result.size() > 4300) rt.fail("an integer of more than {} digits (the limit)", 4300 * 9);
  }
  return rt.big(std::move(result));
}

Value big_arithmetic(Runtime& rt, ExprKind op, const Value& a, const Value& b) {
  const BigInteger x = to_big(a), y = to_big(b);
  rt.step(1 + x.size() * y.size() / 16);
  switch (op) {
    case ExprKind::add:
      return rt.big(x + y);
    case ExprKind::subtract:
      return rt.big(x - y);
    case ExprKind::multiply:
      return rt.big(x * y);
    default: {
      BigInteger quotient, rest;
      rt.step(x.size() * (x.size() + 30 * y.size()));
      BigInteger::divide(x, y, quotient, rest);
      return rt.big(op == ExprKind::floor_divide ? quotient : rest);
    }
  }
}

Value integer_arithmetic(Runtime& rt, ExprKind op, const Value& a, const Value& b) {
  const std::int64_t x = a.as_integer(), y = b.as_integer();
  std::int64_t result = 0;
  switch (op) {
    case ExprKind::add:
      if (!__builtin_add_overflow(x, y, &result)) return Value::integer(result);
      break;
    case ExprKind::subtract:
      if (!__builtin_sub_overflow(x, y, &result)) return Value::integer(result);
      break;
    case ExprKind::multiply:
      if (!__builtin_mul_overflow(x, y, &result)) return Value::integer(result);
      break;
    default:
      if (y == -1) break;  // the smallest integer divided by -1 overflows
      return Value::integer(op == ExprKind::floor_divide ? floor_divide(x, y) : x - floor_divide(x, y) * y);
  }
  return big_arithmetic(rt, op, a, b);
}

// Correctly rounded if both are exact as doubles, which is almost always true.
Value true_divide(Runtime& rt, const Value& a, const Value& b) {
  const double y = to_real(rt, b);
  return Value::real(to_real(rt, a) / y);
}

bool is_zero(const Value& value) {
  return value.is(Kind::real) ? value.as_real() == 0 : value.is_integer() && value.as_integer() == 0;
}

Value arithmetic(Runtime& rt, ExprKind op, const Value& a, const Value& b) {
  const bool divides = op == ExprKind::divide || op == ExprKind::floor_divide || op == ExprKind::modulo;
  if (divides && is_zero(b)) rt.fail("division by zero");
  const bool reals = a.is(Kind::real) || b.is(Kind::real);
  if (op == ExprKind::divide) return true_divide(rt, a, b);
  if (op == ExprKind::power) return reals ? float_power(rt, to_real(rt, a), to_real(rt, b)) : integer_power(rt, a, b);
  if (!reals) return a.is_integer() && b.is_integer() ? integer_arithmetic(rt, op, a, b) : big_arithmetic(rt, op, a, b);
  const double x = to_real(rt, a), y = to_real(rt, b);
  switch (op) {
    case ExprKind::add:
      return Value::real(x + y);
    case ExprKind::subtract:
      return Value::real(x - y);
    case ExprKind::multiply:
      return Value::real(x * y);
    case ExprKind::floor_divide:
      return Value::real(float_floor_divide(x, y));
    default:
      return Value::real(float_modulo(x, y));
  }
}

Value add_texts(Runtime& rt, const Value& a, const Value& b) {
  // A text marked as safe escapes text that is added to it.
  const bool markup = a.is_markup() || b.is_markup();
  const auto part = [&](const Value& value) {
    return markup && !value.is_markup() ? escape_html(value.as_text()) : std::string(value.as_text());
  };
  rt.check_memory(a.as_text().size() + b.as_text().size());
  std::string text = part(a);
  text += markup ? part(b) : b.as_text();
  return rt.text(std::move(text)).as_markup(markup);
}

Value repeat(Runtime& rt, const Value& value, const Value& times) {
  const std::int64_t given = times.is(Kind::big) ? (to_big(times).is_negative() ? 0 : std::numeric_limits<std::int64_t>::max())
                                                 : std::max<std::int64_t>(times.as_integer(), 0);
  const auto count = static_cast<std::size_t>(given);
  const std::size_t size = value.is_text() ? value.as_text().size() : list_size(value) * sizeof(Value);
  if (size > 0 && count > rt.options().limits.memory_bytes / size)
    rt.fail("a repetition of {} bytes, {} times: more than {} bytes (the limit)", size, count, rt.options().limits.memory_bytes);
  rt.check_memory(size * count);
  rt.work(size * count);
  if (value.is_text()) {
    std::string text;
    text.reserve(size * count);
    for (std::size_t i = 0; size > 0 && i < count; ++i) text += value.as_text();
    return rt.text(std::move(text)).as_markup(value.is_markup());
  }
  std::vector<Value> items;
  const std::vector<Value> all = to_items(rt, value);
  for (std::size_t i = 0; size > 0 && i < count; ++i) items.insert(items.end(), all.begin(), all.end());
  return rt.sequence(value.is(Kind::tuple) ? Kind::tuple : Kind::list, std::move(items));
}

bool compare_by(CompareOp op, int order) {
  switch (op) {
    case CompareOp::lt:
      return order < 0;
    case CompareOp::le:
      return order <= 0;
    case CompareOp::gt:
      return order > 0;
    default:
      return order >= 0;
  }
}

bool is_set_like(const Value& value) {
  return value.is(Kind::view) && value.as<ViewObject>().of != ViewOf::values;
}

}  // namespace

bool truth(Runtime& rt, const Value& value) {
  switch (value.kind()) {
    case Kind::missing:
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
    case Kind::integer:
      return value.as_integer() != 0;
    case Kind::real:
      return value.as_real() != 0;
    case Kind::text:
      return !value.as_text().empty();
    case Kind::loop:
      return value.as<LoopObject>().length(rt) > 0;
    default: {
      const std::optional<std::size_t> size = length(rt, value);
      return !size || *size > 0;
    }
  }
}

std::optional<std::size_t> length(Runtime& rt, const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return 0;
    case Kind::text:
      rt.work(value.as_text().size());
      return char_count(value.as_text());
    case Kind::json_list:
    case Kind::list:
    case Kind::tuple:
      return list_size(value);
    case Kind::json_dict:
    case Kind::dict:
      return dict_size(value);
    case Kind::range:
      return static_cast<std::size_t>(value.as<RangeObject>().count);
    case Kind::view:
      return dict_size(value.as<ViewObject>().dict);
    case Kind::loop:
      return value.as<LoopObject>().length(rt);
    default:
      return std::nullopt;
  }
}

bool equal(Runtime& rt, const Value& a, const Value& b) {
  rt.step();
  if (a.is_text() && b.is_text()) return a.as_text() == b.as_text();
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.is(Kind::none) || b.is(Kind::none)) return a.kind() == b.kind();
  if (a.is_undefined() || b.is_undefined()) return a.kind() == b.kind();
  const Nested nested(rt);
  if ((a.is_list() && b.is_list()) || (a.is(Kind::tuple) && b.is(Kind::tuple))) return equal_items(rt, a, b);
  if (a.is_dict() && b.is_dict()) return equal_dicts(rt, a, b);
  if (a.is(Kind::range) && b.is(Kind::range)) {
    const auto &x = a.as<RangeObject>(), &y = b.as<RangeObject>();
    return x.count == y.count && (x.count == 0 || (x.start == y.start && (x.count == 1 || x.step == y.step)));
  }
  if (is_set_like(a) && is_set_like(b)) {
    if (*length(rt, a) != *length(rt, b)) return false;
    Cursor cursor(rt, a);
    for (Value item; cursor.next(rt, item);)
      if (!contains(rt, b, item)) return false;
    return true;
  }
  if (a.is(Kind::function) && b.is(Kind::function)) {
    const auto &x = a.as<FunctionObject>(), &y = b.as<FunctionObject>();
    return &x.row == &y.row && x.self.is_same(y.self);
  }
  return a.is_same(b);
}

bool ordered(Runtime& rt, const Value& a, CompareOp op, const Value& b) {
  rt.step();
  refuse_undefined(rt, a);
  refuse_undefined(rt, b);
  if (a.is_text() && b.is_text()) return compare_by(op, a.as_text().compare(b.as_text()));
  if (a.is_number() && b.is_number()) {
    const int order = compare_numbers(a, b);
    return order != 2 && compare_by(op, order);
  }
  const Nested nested(rt);
  if ((a.is_list() && b.is_list()) || (a.is(Kind::tuple) && b.is(Kind::tuple))) {
    const std::size_t x = list_size(a), y = list_size(b);
    for (std::size_t i = 0; i < x && i < y; ++i) {
      const Value left = list_at(rt, a, i), right = list_at(rt, b, i);
      if (!left.is_same(right) && !equal(rt, left, right)) return ordered(rt, left, op, right);
    }
    return compare_by(op, x < y ? -1 : x > y ? 1 : 0);
  }
  if (is_set_like(a) && is_set_like(b)) rt.fail("the order of views of dicts is not implemented");
  rt.fail("{} and {} have no order", object_name(a), object_name(b));
}

bool contains(Runtime& rt, const Value& in, const Value& item) {
  if (in.is_text()) {
    if (!item.is_text()) {
      refuse_undefined(rt, item);
      rt.fail("'in' of a text needs a text, not {}", object_name(item));
    }
    rt.work(in.as_text().size());
    return in.as_text().find(item.as_text()) != std::string_view::npos;
  }
  if (in.is_dict()) return dict_find(rt, in, item).has_value();
  if (in.is(Kind::view) && in.as<ViewObject>().of == ViewOf::keys)
    return dict_find(rt, in.as<ViewObject>().dict, item).has_value();
  Cursor cursor(rt, in);
  for (Value other; cursor.next(rt, other);)
    if (other.is_same(item) || equal(rt, other, item)) return true;
  return false;
}

std::size_t hash(Runtime& rt, const Value& value) {
  const auto mix = [](std::size_t seed, std::size_t more) { return (seed ^ more) * 0x9E3779B97F4A7C15U + 1; };
  switch (value.kind()) {
    case Kind::text:
      rt.work(value.as_text().size());
      return std::hash<std::string_view>()(value.as_text());
    case Kind::boolean:
    case Kind::integer:
    case Kind::real:
    case Kind::big:
      return std::hash<double>()(value.is(Kind::big) ? value.as<BigObject>().value.to_double() : to_real(rt, value));
    case Kind::tuple: {
      const Nested nested(rt);
      std::size_t code = 7;
      for (const Value& item : value.as<ListObject>().items) code = mix(code, hash(rt, item));
      return code;
    }
    case Kind::range:
      return mix(11, static_cast<std::size_t>(value.as<RangeObject>().count));
    case Kind::none:
    case Kind::undefined:
      return static_cast<std::size_t>(value.kind());
    case Kind::json_list:
    case Kind::json_dict:
    case Kind::list:
    case Kind::dict:
    case Kind::view:
      rt.fail("{} cannot be a key: it can change", object_name(value));
    case Kind::function:
      return std::hash<const void*>()(&value.as<FunctionObject>().row);
    default:
      return std::hash<const void*>()(value.object());
  }
}

Value binary(Runtime& rt, ExprKind op, const Value& a, const Value& b) {
  rt.step();
  if (op == ExprKind::modulo && a.is_text()) return format_percent(rt, a, b);
  refuse_undefined(rt, a);
  refuse_undefined(rt, b);
  if (a.is_number() && b.is_number()) return arithmetic(rt, op, a, b);
  if (op == ExprKind::add) {
    if (a.is_text() && b.is_text()) return add_texts(rt, a, b);
    if ((a.is_list() && b.is_list()) || (a.is(Kind::tuple) && b.is(Kind::tuple))) {
      std::vector<Value> items = to_items(rt, a);
      for (Value& item : to_items(rt, b)) items.push_back(std::move(item));
      return rt.sequence(a.is(Kind::tuple) ? Kind::tuple : Kind::list, std::move(items));
    }
  }
  if (op == ExprKind::multiply) {
    const bool first = a.is_text() || is_sequence(a), second = b.is_text() || is_sequence(b);
    if (first && (b.is_integer() || b.is(Kind::big))) return repeat(rt, a, b);
    if (second && (a.is_integer() || a.is(Kind::big))) return repeat(rt, b, a);
  }
  if (op == ExprKind::subtract && is_set_like(a)) rt.fail("differences of views of dicts are not implemented");
  rt.fail("'{}' of {} and {}", op_name(op), object_name(a), object_name(b));
}

Value negative(Runtime& rt, const Value& value, bool negate) {
  refuse_undefined(rt, value);
  if (!value.is_number()) rt.fail("'{}' of {}", negate ? "-" : "+", object_name(value));
  if (value.is(Kind::real)) return Value::real(negate ? -value.as_real() : value.as_real());
  if (!negate) return value.is(Kind::big) ? value : Value::integer(value.as_integer());
  if (value.is_integer() && value.as_integer() != std::numeric_limits<std::int64_t>::min())
    return Value::integer(-value.as_integer());
  return rt.big(-to_big(value));
}

}  // namespace qft::jinja
