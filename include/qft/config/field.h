// What one configuration key is: its name, its help, its rule, and a typed reference to the struct member behind it.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

namespace qft::config {

/// The member behind a key. An empty std::string, std::optional or vector, and a null json, mean "not set".
using FieldRef = std::variant<bool*, std::int64_t*, double*, std::string*, std::vector<std::string>*, std::vector<double>*,
                              std::optional<bool>*, std::optional<std::int64_t>*, std::optional<double>*, nlohmann::json*>;

/// The most steps of a run, and the most epochs: beyond what a run can reach, and within what 64-bit counts of samples hold.
inline constexpr std::int64_t kMostSteps = 1'000'000'000;

/// A key's name, its one-line help and the rule that each value must meet. Built in the visit() functions.
class Field {
 public:
  Field(std::string_view name, std::string_view help) : name(name), help(help) {}

  /// Only these words are values. Where "no" is one of them, YAML's unquoted no / false / off mean it too.
  Field&& one_of(std::initializer_list<std::string_view> words) && {
    choices = words;
    return std::move(*this);
  }
  /// The number lies in [low, high].
  Field&& in(double low, double high) && {
    min = low;
    max = high;
    return std::move(*this);
  }
  /// The number lies in [low, high).
  Field&& in_half_open(double low, double high) && {
    max_excluded = true;
    return std::move(*this).in(low, high);
  }
  Field&& at_least(double low) && { return std::move(*this).in(low, std::numeric_limits<double>::infinity()); }
  Field&& above(double low) && {
    min_excluded = true;
    return std::move(*this).at_least(low);
  }
  Field&& at_most(double high) && {
    max = high;
    return std::move(*this);
  }
  /// A count of steps: a whole number of at most kMostSteps, or a fraction below 1 of all steps.
  Field&& steps() && {
    whole_from_one = true;
    return std::move(*this).at_most(kMostSteps);
  }
  /// A file or folder (or several): ~ and $VARS expand.
  Field&& path() && {
    is_path = true;
    return std::move(*this);
  }
  /// The word ("auto", "null") that stands for the number 0.
  Field&& zero_word(std::string_view word) && {
    zero = word;
    return std::move(*this);
  }
  /// What an error adds after naming the allowed values: why, and the way out.
  Field&& advise(std::string_view text) && {
    advice = text;
    return std::move(*this);
  }
  /// What the help shows as the default where the member's own initial value says little.
  Field&& shown_default(std::string_view text) && {
    default_text = text;
    return std::move(*this);
  }

  std::string_view name;
  std::string_view help;
  std::vector<std::string_view> choices;
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool min_excluded = false;
  bool max_excluded = false;
  bool whole_from_one = false;
  bool is_path = false;
  std::string_view zero;
  std::string_view advice;
  std::string_view default_text;
};

/// What a struct's visit() calls for each of its fields, in the order in which help and dumps show them.
using FieldVisitor = std::function<void(const Field&, FieldRef)>;

}  // namespace qft::config
