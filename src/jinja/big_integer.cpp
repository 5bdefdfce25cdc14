#include "big_integer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

namespace qft::jinja {
namespace {

constexpr std::uint32_t kBase = 1'000'000'000;
constexpr std::size_t kBaseDigits = 9;

}  // namespace

BigInteger::BigInteger(std::int64_t value) : negative_(value < 0) {
  std::uint64_t rest = negative_ ? ~static_cast<std::uint64_t>(value) + 1 : static_cast<std::uint64_t>(value);
  for (; rest > 0; rest /= kBase) limbs_.push_back(static_cast<std::uint32_t>(rest % kBase));
}

BigInteger BigInteger::parse(std::string_view digits) {
  BigInteger number;
  number.negative_ = digits.starts_with('-');
  if (digits.starts_with('-') || digits.starts_with('+')) digits.remove_prefix(1);
  while (!digits.empty()) {
    const std::size_t count = std::min(digits.size(), kBaseDigits);
    std::uint32_t limb = 0;
    for (const char c : digits.substr(digits.size() - count)) limb = limb * 10 + static_cast<std::uint32_t>(c - '0');
    number.limbs_.push_back(limb);
    digits.remove_suffix(count);
  }
  number.trim();
  return number;
}

BigInteger BigInteger::truncate(double value) {
  return parse(fmt::format("{:.0f}", std::trunc(value)));
}

std::string BigInteger::to_string() const {
  if (limbs_.empty()) return "0";
  std::string text = negative_ ? "-" : "";
  text += std::to_string(limbs_.back());
  for (std::size_t i = limbs_.size() - 1; i-- > 0;) text += fmt::format("{:09}", limbs_[i]);
  return text;
}

double BigInteger::to_double() const {
  return std::strtod(to_string().c_str(), nullptr);
}

std::optional<std::int64_t> BigInteger::to_int64() const {
  if (limbs_.size() > 3) return std::nullopt;
  const std::string text = to_string();
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

void BigInteger::trim() {
  while (!limbs_.empty() && limbs_.back() == 0) limbs_.pop_back();
  if (limbs_.empty()) negative_ = false;
}

int BigInteger::compare_magnitude(const BigInteger& a, const BigInteger& b) {
  if (a.limbs_.size() != b.limbs_.size()) return a.limbs_.size() < b.limbs_.size() ? -1 : 1;
  for (std::size_t i = a.limbs_.size(); i-- > 0;)
    if (a.limbs_[i] != b.limbs_[i]) return a.limbs_[i] < b.limbs_[i] ? -1 : 1;
  return 0;
}

int BigInteger::compare(const BigInteger& a, const BigInteger& b) {
  if (a.negative_ != b.negative_) return a.negative_ ? -1 : 1;
  const int order = compare_magnitude(a, b);
  return a.negative_ ? -order : order;
}

BigInteger BigInteger::operator-() const {
  BigInteger result = *this;
  result.negative_ = !negative_ && !limbs_.empty();
  return result;
}

BigInteger operator+(const BigInteger& a, const BigInteger& b) {
  BigInteger result;
  if (a.negative_ == b.negative_) {
    std::uint32_t carry = 0;
    for (std::size_t i = 0; i < std::max(a.limbs_.size(), b.limbs_.size()) || carry > 0; ++i) {
      const std::uint32_t sum = carry + (i < a.limbs_.size() ? a.limbs_[i] : 0) + (i < b.limbs_.size() ? b.limbs_[i] : 0);
      result.limbs_.push_back(sum % kBase);
      carry = sum / kBase;
    }
    result.negative_ = a.negative_;
  } else {
    const bool larger = BigInteger::compare_magnitude(a, b) >= 0;
    const BigInteger& high = larger ? a : b;
    const BigInteger& low = larger ? b : a;
    std::int64_t borrow = 0;
    for (std::size_t i = 0; i < high.limbs_.size(); ++i) {
      std::int64_t rest = std::int64_t{high.limbs_[i]} - borrow - (i < low.limbs_.size() ? low.limbs_[i] : 0);
      borrow = rest < 0 ? 1 : 0;
      result.limbs_.push_back(static_cast<std::uint32_t>(rest + borrow * kBase));
    }
    result.negative_ = high.negative_;
  }
  result.trim();
  return result;
}

BigInteger operator*(const BigInteger& a, const BigInteger& b) {
  BigInteger result;
  result.limbs_.assign(a.limbs_.size() + b.limbs_.size(), 0);
  for (std::size_t i = 0; i < a.limbs_.size(); ++i) {
    std::uint64_t carry = 0;
    for (std::size_t j = 0; j < b.limbs_.size() || carry > 0; ++j) {
      const std::uint64_t sum =
          result.limbs_[i + j] + carry + (j < b.limbs_.size() ? std::uint64_t{a.limbs_[i]} * b.limbs_[j] : 0);
      result.limbs_[i + j] = static_cast<std::uint32_t>(sum % kBase);
      carry = sum / kBase;
    }
  }
  result.negative_ = a.negative_ != b.negative_;
  result.trim();
  return result;
}

void BigInteger::divide(const BigInteger& a, const BigInteger& b, BigInteger& quotient, BigInteger& remainder) {
  BigInteger divisor = b, rest, result;
  divisor.negative_ = false;
  result.limbs_.assign(a.limbs_.size(), 0);
  for (std::size_t i = a.limbs_.size(); i-- > 0;) {
    rest.limbs_.insert(rest.limbs_.begin(), a.limbs_[i]);
    rest.trim();
    // Bisect for the quotient's limb: the largest one with a product that still fits.
    std::uint32_t low = 0, high = kBase - 1;
    if (compare_magnitude(rest, divisor) < 0) high = 0;
    while (low < high) {
      const std::uint32_t middle = low + (high - low + 1) / 2;
      if (compare_magnitude(divisor * BigInteger(middle), rest) <= 0)
        low = middle;
      else
        high = middle - 1;
    }
    result.limbs_[i] = low;
    rest = rest - divisor * BigInteger(low);
  }
  result.trim();
  if (a.negative_ != b.negative_) {
    if (!rest.is_zero()) {
      result = result + BigInteger(1);
      rest = divisor - rest;
    }
    result = -result;
  }
  quotient = result;
  remainder = b.negative_ ? -rest : rest;
}

}  // namespace qft::jinja
