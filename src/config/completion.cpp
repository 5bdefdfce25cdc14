#include "qft/config/reference.h"
#include "qft/core/log.h"

#include <algorithm>
#include <map>

#include "help_parts.h"
#include <boost/program_options/cmdline.hpp>
#include <boost/program_options/value_semantic.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace qft::config {
namespace {

constexpr std::string_view kReadLine =
    R"(  local IFS=$' \t\n' current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
  local command= words= options= switches= keys= key= name= values= sign= at
  COMPREPLY=()
  for ((at = 1; at < COMP_CWORD; at++)); do
    [[ ${COMP_WORDS[at]} == -* ]] || { command=${COMP_WORDS[at]}; break; }
  done
  # bash makes three words of key=value.
  if [[ $current == "=" ]]; then key=$previous current= sign=yes
  elif [[ $previous == "=" ]]; then key=${COMP_WORDS[COMP_CWORD-2]} sign=yes
  elif [[ $previous == -[a-zA-Z-]* && $current != -* ]]; then key=$previous; fi
  name=${key#-} name=${name#-} name=${name//-/_}
)";

constexpr std::string_view kComplete = R"(  # A switch takes no value, and a key that is true or false needs none.
  [[ -z $sign && (" $switches " == *" $key "* || $values == "true false") ]] && key=
  [[ -z $values ]] || mapfile -t COMPREPLY < <(compgen -W "$values" -- "$current")
  [[ -z $key && -z ${COMPREPLY[*]} ]] || return 0
  if [[ $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$current"; compgen -P -- -W "$keys" -- "${current#--}")
    name=${current#--} name=${name//-/_}
    [[ -n ${COMPREPLY[*]} ]] || mapfile -t COMPREPLY < <(compgen -P -- -W "$keys" -- "$name")
  else
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current"; [[ -z $current ]] || compgen -S = -W "$keys" -- "$current")
    # Without another candidate, bash completes files. Beside others they must be listed.
    [[ -z $keys || -z ${COMPREPLY[*]} ]] || mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$current")
  fi
  if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]]; then compopt -o nospace 2>/dev/null; fi
}
)";

/// Joins the words. bash expands the words of a completion, so words with other characters than those of names are left out.
template <class Words>
std::string plain_words(const Words& words) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.+";
  std::string out;
  for (const std::string_view word : words)
    if (!word.empty() && word.find_first_not_of(kPlain) == word.npos) out += (out.empty() ? "" : " ") + std::string(word);
  return out;
}

std::string key_values(const BoundField& key) {
  const bool flag = std::holds_alternative<bool*>(key.ref) || std::holds_alternative<std::optional<bool>*>(key.ref);
  return flag ? "true false" : plain_words(implemented_values(key));
}

/// The keys of each command as a shell variable. Commands that accept the same keys share it.
class KeySets {
 public:
  /// Returns "$keys_1" for the keys of the command; empty if it accepts none.
  std::string variable(const CommandSpec& spec) {
    RunConfig defaults;
    std::vector<std::string_view> names;
    for (const BoundField& key : bound_fields(defaults))
      if (accepts_key(spec, key)) names.push_back(key.field.name);
    if (names.empty()) return {};
    const std::string text = plain_words(names);
    const auto found = std::ranges::find(sets_, text);
    const auto index = found - sets_.begin();
    if (found == sets_.end()) sets_.push_back(text);
    return fmt::format("$keys_{}", index + 1);
  }
  std::string definitions() const {
    std::string out;
    for (std::size_t i = 0; i < sets_.size(); ++i) out += fmt::format("  local keys_{}=\"{}\"\n", i + 1, sets_[i]);
    return out;
  }

 private:
  std::vector<std::string> sets_;
};

/// Returns a command's branch: its options, switches, keys, and values.
std::string command_branch(std::string_view pattern, const CommandSpec& spec, KeySets& sets) {
  namespace style = boost::program_options::command_line_style;
  std::string options, switches;
  const auto visible = visible_options(spec);
  for (const auto& option : visible.options()) {
    const std::string name = "--" + option->long_name(), brief = option->canonical_display_name(style::allow_dash_for_short);
    options += (options.empty() ? "" : " ") + name;
    if (option->semantic()->min_tokens() > 0) continue;
    switches += (switches.empty() ? "" : " ") + name + (brief.starts_with('-') ? " " + brief : "");
  }
  std::string out = fmt::format("    {}) options=\"{}\" switches=\"{}\"", pattern, options, switches);
  if (const std::string keys = sets.variable(spec); !keys.empty()) out += " keys=" + keys;
  for (const auto& [option, values] : spec.choices)
    out += option.empty() ? fmt::format("\n      words=\"{}\"", plain_words(values))
                          : fmt::format("\n      [[ $key != --{} ]] || values=\"{}\"", option, plain_words(values));
  return out + " ;;\n";
}

/// Returns the branches of all commands. The command that runs without a word comes last: its keys and options are also those of
/// an unknown word.
std::string command_branches(const ProgramSpec& program, KeySets& sets) {
  std::string out, fallback;
  for (const CommandSpec& spec : program.commands) {
    const std::string_view word = word_of(program, spec);
    (word.empty() ? fallback : out) += command_branch(word.empty() ? "*" : word, spec, sets);
  }
  RunConfig defaults;
  std::vector<std::string_view> topics = topics_of(program);
  for (const CommandSpec& spec : program.commands) topics.push_back(word_of(program, spec));
  if (program.dialects != nullptr)
    for (const BoundField& key : keys_of(program, defaults)) topics.push_back(key.field.name);
  out += fmt::format("    help) words=\"{}\" ;;\n", plain_words(topics));
  if (fallback.empty()) out += "    \"\") options=\"--help --version\" ;;\n";
  return out + fallback;
}

/// Returns a branch for each list of values, with the program's keys that have it.
std::string value_branches(const ProgramSpec& program) {
  RunConfig defaults;
  std::map<std::string, std::string> names;  // by values
  for (const BoundField& key : keys_of(program, defaults)) {
    std::string& all = names[key_values(key)];
    all += (all.empty() ? "" : "|") + std::string(key.field.name);
  }
  names.erase("");
  std::string out;
  for (const auto& [values, keys] : names) out += fmt::format("    {}) values=\"{}\" ;;\n", keys, values);
  return out.empty() ? out : "  case $name in\n" + out + "  esac\n";
}

}  // namespace

std::string bash_completion(const ProgramSpec& program) {
  std::string function = "_" + program.name;
  std::ranges::replace(function, '-', '_');
  std::vector<std::string_view> words;
  for (const CommandSpec& spec : program.commands) words.push_back(word_of(program, spec));
  words.push_back("help");
  KeySets sets;
  const std::string commands = command_branches(program, sets);
  std::string out =
      fmt::format("# Completes command lines of {0} in bash. Made by `{0} help bash`.\n{1}() {{\n", program.name, function);
  out += kReadLine;
  out += sets.definitions();
  out += value_branches(program);
  out += fmt::format("  [[ $key != --log-level ]] || values=\"{}\"\n", fmt::join(log::kSeverityNames, " "));
  out += fmt::format("  [[ -n $command ]] || words=\"{}\"\n", plain_words(words));
  out += "  case $command in\n" + commands + "  esac\n";
  out += kComplete;
  return out + fmt::format("complete -o default -F {} {}\n", function, program.name);
}

}  // namespace qft::config
