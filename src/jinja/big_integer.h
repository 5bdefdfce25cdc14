// Integers of any size, as in Python. Internal to the module.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qft::jinja {

/// Sign and magnitude; zero has no digits and no sign.
class BigInteger {
 public:
  BigInteger() = default;
  BigInteger(std::int64_t value);  // NOLINT: implicit as between integers
  /// Parses digits with an optional sign, which the caller has checked.
  static BigInteger parse(std::string_view digits);
  /// Converts a finite double and drops its fraction.
  static BigInteger truncate(double value);

  std::string to_string() const;
  /// Returns infinity if the value is too large.
  double to_double() const;
  std::optional<std::int64_t> to_int64() const;
  bool is_negative() const { return negative_; }
  bool is_zero() const { return limbs_.empty(); }
  /// Number of limbs.
  std::size_t size() const { return limbs_.size(); }

  BigInteger operator-() const;
  friend BigInteger operator+(const BigInteger& a, const BigInteger& b);
  friend BigInteger operator-(const BigInteger& a, const BigInteger& b) { return a + (-b); }
  friend BigInteger operator*(const BigInteger& a, const BigInteger& b);
  /// Quotient rounded down; the remainder has the sign of `b`, which must not be zero.
  static void divide(const BigInteger& a, const BigInteger& b, BigInteger& quotient, BigInteger& remainder);
  /// -1, 0 or 1.
  static int compare(const BigInteger& a, const BigInteger& b);

 private:
  static int compare_magnitude(const BigInteger& a, const BigInteger& b);
  void trim();

  bool negative_ = false;
  std::vector<std::uint32_t> limbs_;  // base 10^9, lowest first: most numbers are only parsed and printed
};

}  // namespace qft::jinja
