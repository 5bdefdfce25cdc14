#include "qft/config/reference.h"

#include "qft/config/help.h"
#include "qft/config/nearest.h"
#include "qft/core/error.h"
#include "qft/core/version.h"

#include <algorithm>
#include <cctype>

#include "help_parts.h"
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace qft::config {
namespace {

namespace po = boost::program_options;

/// Escapes text for troff. Without escapes, troff prints hyphens, quotes and a few signs as characters that cannot be pasted.
std::string troff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '\\':
        out += "\\e";
        break;
      case '-':
        out += "\\-";
        break;
      case '\'':
        out += "\\(aq";
        break;
      case '`':
        out += "\\(ga";
        break;
      case '^':
        out += "\\(ha";
        break;
      case '~':
        out += "\\(ti";
        break;
      case '"':
        out += "\\(dq";
        break;
      case '.':
        out += out.empty() || out.back() == '\n' ? "\\&." : ".";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string man_entry(std::string_view term, std::string_view text) {
  return fmt::format(".TP\n\\fB{}\\fR\n{}\n", troff(term), troff(text));
}

/// Describes the options except those that `without` has too.
std::string man_options(const po::options_description& options, const po::options_description& without = {}) {
  std::string out;
  for (const auto& option : options.options()) {
    if (without.find_nothrow(option->long_name(), false) != nullptr) continue;
    const std::string value = option->format_parameter();
    out += man_entry(option->format_name() + (value.empty() ? "" : " " + value), option->description());
  }
  return out;
}

std::string man_keys(const ProgramSpec& program) {
  RunConfig defaults;
  std::string out;
  std::string_view group;
  for (const BoundField& key : keys_of(program, defaults)) {
    if (key.group != group) out += fmt::format(".SS Keys: {}\n", troff(key.group));
    group = key.group;
    out += man_entry(key.field.name, key.field.help);
    for (const auto& [name, text] :
         {std::pair{"Value", values_of(key)}, {"Default", default_of(key)}, {"Read by", readers_of(key)}})
      out += fmt::format(".br\n{}: {}\n", name, troff(text));
  }
  if (out.empty()) return out;
  return ".SH KEYS\n" +
         troff("Write a key into the run file, or on the command line as key=value, --key value or --key (true).") + "\n" + out;
}

/// Escapes text for a cell of a Markdown table.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view("|<>*[]`").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

/// Formats text as code in a cell of a Markdown table.
std::string code_cell(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '|' ? "\\|" : std::string(1, c);
  return out.empty() ? "" : "`" + out + "`";
}

/// "qft train, qft plan, qft-pack" -> "train, plan, qft-pack": short lines for hundreds of keys.
std::string short_readers(const BoundField& key) {
  std::string text = readers_of(key);
  constexpr std::string_view kProgram = "qft ";
  for (std::size_t at = text.find(kProgram); at != std::string::npos; at = text.find(kProgram, at))
    text.erase(at, kProgram.size());
  return text;
}

struct Topic {
  std::string_view name, help;
  std::string (*text)(const ProgramSpec& program);  // nullptr: describe_key() answers
  bool about_keys = false;                          // only for programs that explain keys
};
constexpr Topic kTopics[] = {
    {"KEY", "explains a key of qft or of another tool", nullptr, true},
    {"keys", "all keys of a run file, in Markdown", [](const ProgramSpec&) { return keys_page(); }, true},
    {"man", "the man page", man_page},
    {"bash", "the script that completes command lines in bash", bash_completion},
};

bool has_topic(const ProgramSpec& program, const Topic& topic) {
  return !topic.about_keys || program.dialects != nullptr;
}

}  // namespace

std::string_view word_of(const ProgramSpec& program, const CommandSpec& spec) {
  return std::string_view(spec.name).substr(std::min(spec.name.size(), program.name.size() + 1));
}

std::vector<std::string_view> topics_of(const ProgramSpec& program) {
  std::vector<std::string_view> topics;
  for (const Topic& topic : kTopics)
    if (has_topic(program, topic) && topic.text != nullptr) topics.push_back(topic.name);
  return topics;
}

bool accepts_key(const CommandSpec& spec, const BoundField& key) {
  return spec.run_file != CommandSpec::RunFile::none && reads_key(spec.purpose, key);
}

std::vector<BoundField> keys_of(const ProgramSpec& program, RunConfig& defaults) {
  std::vector<BoundField> keys = bound_fields(defaults);
  std::erase_if(keys, [&](const BoundField& key) {
    return std::ranges::none_of(program.commands, [&](const CommandSpec& spec) { return accepts_key(spec, key); });
  });
  return keys;
}

std::string man_page(const ProgramSpec& program) {
  std::string title = program.name;
  std::ranges::transform(title, title.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  // Neither hyphens nor wide blanks: users copy the names.
  std::string out =
      fmt::format(".TH {} 1 \"\" \"qft {}\" \"User Commands\"\n.nh\n.ad l\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n.nf\n",
                  troff(title), troff(version()), troff(program.name), troff(program.summary));
  for (const CommandSpec& spec : program.commands) out += troff(usage_of(spec)) + "\n";
  out += troff(program.name + " help TOPIC...") + "\n.fi\n.SH COMMANDS\n";
  const po::options_description common = visible_options({});
  for (const CommandSpec& spec : program.commands)
    out += fmt::format(".SS {}\n{}\n{}", troff(spec.name), troff(spec.summary), man_options(visible_options(spec), common));
  out += fmt::format(".SS {}\nPrints the help of a command, or one of these:\n", troff(program.name + " help TOPIC..."));
  for (const Topic& topic : kTopics)
    if (has_topic(program, topic)) out += man_entry(topic.name, topic.help);
  out += ".SH OPTIONS\nEvery command has these options too:\n" + man_options(common);
  out += man_keys(program);
  out += ".SH EXIT STATUS\n" + man_entry(std::to_string(kExitOk), "Done.") + man_entry(std::to_string(kExitFailed), "Failed.") +
         man_entry(std::to_string(kExitUsage), "The command line or the run file is wrong.");
  const bool trains =
      std::ranges::any_of(program.commands, [](const CommandSpec& spec) { return spec.purpose == Purpose::train; });
  if (trains) out += man_entry(std::to_string(kExitRequeue), "Stopped on request after a checkpoint: start it again.");
  out += ".SH SEE ALSO\n";
  std::string others;
  for (const char* other : {"qft", "qft-pack", "qft-ckpt"})
    if (other != program.name) others += fmt::format("{}\\fB{}\\fR(1)", others.empty() ? "" : ", ", troff(other));
  return out + others + "\n";
}

std::string keys_page() {
  RunConfig defaults;
  std::string out =
      "# Keys of a run file\n"
      "\n"
      "Made by `qft help keys` from the tables behind `--help`; `qft help KEY` explains one key, and keys of other tools too. Write a\n"
      "key into the run file as `key: value`, or on the command line as `key=value`, `--key value` or `--key` (true). The last column\n"
      "lists the programs that read the key: subcommands of `qft`, and `qft-pack`.\n";
  std::string_view group;
  for (const BoundField& key : bound_fields(defaults)) {
    if (key.group != group)
      out += fmt::format("\n## {}\n\n| key | default | value | help | read by |\n|---|---|---|---|---|\n", key.group);
    group = key.group;
    out += fmt::format("| `{}` | {} | {} | {} | {} |\n", key.field.name, code_cell(default_of(key)), cell(values_of(key)),
                       cell(key.field.help), short_readers(key));
  }
  return out;
}

std::string list_topics(const ProgramSpec& program) {
  std::string out;
  for (const Topic& topic : kTopics)
    if (has_topic(program, topic)) out += fmt::format("  {:<10} {}\n", topic.name, topic.help);
  return out;
}

std::string help_on(std::span<const std::string> topics, const ProgramSpec& program) {
  std::string out;
  for (const std::string& asked : topics) {
    const auto command = std::ranges::find(program.commands, asked, [&](const CommandSpec& s) { return word_of(program, s); });
    const auto* topic = std::ranges::find(kTopics, asked, &Topic::name);
    std::vector<std::string_view> words = topics_of(program);
    for (const CommandSpec& spec : program.commands) words.push_back(word_of(program, spec));
    std::erase(words, "");
    if (!asked.empty() && command != program.commands.end())
      out += help_of(*command);
    else if (topic != std::end(kTopics) && topic->text != nullptr && has_topic(program, *topic))
      out += topic->text(program);
    else if (program.dialects != nullptr)
      out += describe_key(asked, *program.dialects);
    else
      fail_config("{} help: there is no topic '{}'{}", program.name, asked,
                  suggestion(asked, words, fmt::format("the topics are {}", fmt::join(words, ", "))));
  }
  return out;
}

}  // namespace qft::config
