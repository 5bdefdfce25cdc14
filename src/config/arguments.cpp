#include "arguments.h"

#include "qft/config/bound_field.h"
#include "qft/config/nearest.h"
#include "qft/config/run_config.h"
#include "qft/config/value.h"
#include "qft/core/error.h"
#include "qft/core/file_ending.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include <boost/program_options/option.hpp>
#include <boost/program_options/value_semantic.hpp>

namespace qft::config {
namespace {

namespace po = boost::program_options;

/// The number of values that a key takes.
enum class ValueCount { flag, one, many };

/// The fields of all qft keys, built once.
const std::vector<BoundField>& own_fields() {
  static RunConfig config;
  static const std::vector<BoundField> fields = bound_fields(config);
  return fields;
}

/// Returns nullopt for an unknown name.
std::optional<ValueCount> value_count(std::string_view name, const Dialects& dialects) {
  if (const BoundField* own = find_field(own_fields(), name)) {
    if (std::holds_alternative<bool*>(own->ref) || std::holds_alternative<std::optional<bool>*>(own->ref))
      return ValueCount::flag;
    const bool list =
        std::holds_alternative<std::vector<std::string>*>(own->ref) || std::holds_alternative<std::vector<double>*>(own->ref);
    return list ? ValueCount::many : ValueCount::one;
  }
  const auto foreign = dialects.find(name);
  if (!foreign) return std::nullopt;
  if (!foreign->own.empty()) return value_count(foreign->own, dialects);
  return ValueCount::many;  // none, one or several: the following words decide
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

/// Accepts the words that Hugging Face's parser takes as true and false.
std::optional<bool> flag_word(std::string_view text) {
  const std::string word = lower(text);
  for (const char* yes : {"true", "t", "yes", "y", "on", "1"})
    if (word == yes) return true;
  for (const char* no : {"false", "f", "no", "n", "off", "0"})
    if (word == no) return false;
  return std::nullopt;
}

std::string key_name(std::string_view typed) {
  std::string name(typed);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class Sorter {
 public:
  Sorter(const std::vector<std::string>& arguments, const po::options_description& options, std::string_view program,
         const Dialects& dialects)
      : arguments_(arguments), options_(options), program_(program), dialects_(dialects) {}

  Arguments run() && {
    while (at_ < arguments_.size()) {
      const std::string& argument = arguments_[at_];
      if (const auto* option = find_option(argument)) {
        add_program_option(*option);
      } else if (argument.starts_with("--") && argument.size() > 2) {
        take_key();
      } else if (argument.size() > 1 && argument[0] == '-' && std::isalpha(static_cast<unsigned char>(argument[1]))) {
        out_.program.push_back(argument);  // Boost reports it as unknown
        ++at_;
      } else {
        out_.rest.push_back(argument);
        ++at_;
      }
    }
    return std::move(out_);
  }

 private:
  const po::option_description* find_option(std::string_view argument) const {
    const bool is_long = argument.starts_with("--");
    const std::string name(is_long ? argument.substr(2, argument.find('=') - 2) : argument.substr(0, 2));
    if (name.empty() || argument.size() < 2 || argument[0] != '-') return nullptr;
    for (const auto& option : options_.options()) {
      for (const std::string& spelt : {name, is_long ? key_name(name) : name})
        if (option->match(spelt, false, false, false) == po::option_description::full_match) return option.get();
    }
    return nullptr;
  }

  void add_program_option(const po::option_description& option) {
    const std::string& argument = arguments_[at_++];
    const bool is_long = argument.starts_with("--");
    out_.program.push_back(is_long ? "--" + option.long_name() + argument.substr(std::min(argument.find('='), argument.size()))
                                   : argument);
    const bool joined = is_long ? argument.find('=') != std::string::npos : argument.size() > 2;
    if (option.semantic()->min_tokens() > 0 && !joined && at_ < arguments_.size()) out_.program.push_back(arguments_[at_++]);
  }

  [[noreturn]] void fail_unknown(const std::string& argument, const std::string& name) const {
    std::vector<std::string> texts;
    for (const auto& option : options_.options()) texts.push_back(key_name(option->long_name()));
    for (const BoundField& field : own_fields()) texts.emplace_back(field.field.name);
    for (const std::string_view other : dialects_.names()) texts.emplace_back(other);
    const std::vector<std::string_view> names(texts.begin(), texts.end());
    fail_config("{}: {}: there is no such option or key{}", program_, argument,
                suggestion(name, names, fmt::format("see {} --help", program_)));
  }

  bool ends_values() const {
    return at_ >= arguments_.size() || arguments_[at_].starts_with("--") || find_option(arguments_[at_]) != nullptr;
  }

  void add_setting(std::string_view name, std::string_view value) { out_.rest.push_back(fmt::format("--{}={}", name, value)); }

  void take_key() {
    const std::string& argument = arguments_[at_++];
    const std::size_t sign = argument.find('=');
    const std::string name = key_name(std::string_view(argument).substr(2, sign == argument.npos ? sign : sign - 2));
    const auto kind = value_count(name, dialects_);
    if (sign != argument.npos) {
      if (!kind) fail_unknown(argument.substr(0, sign), name);
      const std::string value = argument.substr(sign + 1);
      const auto flag = kind == ValueCount::flag ? flag_word(value) : std::nullopt;
      return add_setting(name, flag ? (*flag ? "true" : "false") : value);
    }
    if (!kind && name.starts_with("no_") && value_count(name.substr(3), dialects_) == ValueCount::flag)
      return add_setting(name.substr(3), "false");
    if (!kind) fail_unknown(argument, name);
    if (*kind == ValueCount::flag) return take_flag(name);
    if (*kind == ValueCount::many) return take_values(argument, name);
    if (ends_values()) fail_config("{}: {} needs a value", program_, argument);
    add_setting(name, arguments_[at_++]);
  }

  void take_flag(const std::string& name) {
    const auto flag = ends_values() ? std::nullopt : flag_word(arguments_[at_]);
    if (flag) ++at_;
    add_setting(name, flag.value_or(true) ? "true" : "false");
  }

  /// True for "name=..." with a known name.
  bool is_setting(std::string_view argument) const {
    const std::size_t sign = argument.find('=');
    return sign != std::string_view::npos && value_count(key_name(argument.substr(0, sign)), dialects_).has_value();
  }

  // Takes all words up to the next option, key=value or run file. The first value may look like one of them.
  void take_values(const std::string& argument, const std::string& name) {
    const auto foreign = dialects_.find(name);
    const bool own = find_field(own_fields(), name) != nullptr || (foreign && !foreign->own.empty());
    std::vector<std::string> values;
    while (!ends_values()) {
      const std::string& next = arguments_[at_];
      const bool is_list_of_files = own && is_json_file(next);
      const bool belongs_elsewhere = is_setting(next) || (is_run_file(next) && !is_list_of_files);
      if (belongs_elsewhere && (!values.empty() || !own)) break;
      require_utf8(next, fmt::format("{}: {}", program_, argument));
      values.push_back(next);
      ++at_;
    }
    if (values.empty() && own) fail_config("{}: {} needs a value", program_, argument);
    if (values.size() < 2) return add_setting(name, values.empty() ? "true" : values.front());
    add_setting(name, nlohmann::json(values).dump());
  }

  const std::vector<std::string>& arguments_;
  const po::options_description& options_;
  std::string_view program_;
  const Dialects& dialects_;
  std::size_t at_ = 0;
  Arguments out_;
};

}  // namespace

Arguments sort_options(const std::vector<std::string>& arguments, const po::options_description& options,
                       std::string_view program, const Dialects& dialects) {
  return Sorter(arguments, options, program, dialects).run();
}

bool is_run_file(std::string_view argument) {
  return is_yaml_file(argument) || is_json_file(argument);
}

}  // namespace qft::config
