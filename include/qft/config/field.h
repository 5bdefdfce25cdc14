// One configuration key: its name, help text, rule, and a typed reference to the struct member that holds its value.
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

/// A pointer to the member that holds a key's value. An empty std::string, std::optional or vector, and a null json, mean "not
/// set".
using FieldRef = std::variant<bool*, std::int64_t*, double*, std::string*, std::vector<std::string>*, std::vector<double>*,
                              std::optional<bool>*, std::optional<std::int64_t>*, std::optional<double>*, nlohmann::json*>;

/// Upper limit for steps and for epochs. No real run reaches it, and sample counts below it fit in 64 bits.
inline constexpr std::int64_t kMaxSteps = 1'000'000'000;

/// A key's name, its one-line help and the rule for its values. The visit() functions build it.
class Field {
 public:
  Field(std::string_view name, std::string_view help) : name(name), help(help) {}

  /// Allows only these words. If "no" is one of them, YAML's unquoted no, false and off also mean "no".
  Field&& one_of(std::initializer_list<std::string_view> words) && {
    choices = words;
    return std::move(*this);
  }
  Field&& one_of(std::vector<std::string_view> words) && {
    choices = std::move(words);
    return std::move(*this);
  }
  /// Allows numbers in [low, high].
  Field&& in(double low, double high) && {
    min = low;
    max = high;
    return std::move(*this);
  }
  /// Allows numbers in [low, high).
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
  /// Allows a number of steps: a whole number up to kMaxSteps, or a fraction of all steps below 1.
  Field&& steps() && {
    whole_from_one = true;
    return std::move(*this).at_most(kMaxSteps);
  }
  /// Marks the value as one or several paths: ~ and $VARS expand.
  Field&& path() && {
    is_path = true;
    return std::move(*this);
  }
  /// Sets the word ("auto", "null") that means the number 0.
  Field&& zero_word(std::string_view word) && {
    zero = word;
    return std::move(*this);
  }
  /// Sets the text that an error adds after the allowed values: the reason and the remedy.
  Field&& advise(std::string_view text) && {
    advice = text;
    return std::move(*this);
  }
  /// Sets the default that the help shows, for members with an uninformative initial value.
  Field&& shown_default(std::string_view text) && {
    default_text = text;
    return std::move(*this);
  }

  /// Marks the key as one of a run's own outputs or of its start, not of what it learns: qft compare leaves it out. A sweep sets
  /// those with the run's name in the value, and rejects them as axes.
  enum class PerRun : std::uint8_t { no, start, named };
  Field&& per_run(PerRun kind) && {
    per_run_kind = kind;
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
  PerRun per_run_kind = PerRun::no;
};

/// The callback that a struct's visit() calls for each field, in the order of help and dumps.
using FieldVisitor = std::function<void(const Field&, FieldRef)>;

}  // namespace qft::config
