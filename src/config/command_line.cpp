#include "qft/config/command_line.h"

#include "qft/config/help.h"
#include "qft/config/saved_run.h"
#include "qft/config/start.h"
#include "qft/core/error.h"
#include "qft/core/member.h"
#include "qft/core/version.h"

#include <algorithm>
#include <initializer_list>
#include <iostream>
#include <sstream>

#include "apply.h"
#include "arguments.h"
#include "help_parts.h"
#include <boost/program_options/errors.hpp>
#include <boost/program_options/parsers.hpp>
#include <boost/program_options/positional_options.hpp>
#include <boost/program_options/value_semantic.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace qft::config {
namespace {

namespace po = boost::program_options;
using RunFile = CommandSpec::RunFile;

constexpr const char* kArguments = "arguments";

po::variables_map parse(const CommandSpec& spec, const std::vector<std::string>& arguments) {
  po::options_description all = visible_options(spec);
  all.add_options()(kArguments, po::value<std::vector<std::string>>());
  po::positional_options_description positional;
  positional.add(kArguments, -1);
  const int style = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
  po::variables_map values;
  try {
    po::store(po::command_line_parser(arguments).options(all).positional(positional).style(style).run(), values);
    if (values.count("help") == 0 && values.count("version") == 0) po::notify(values);
  } catch (const po::unknown_option& error) {
    fail_config("{}: unknown option '{}'; see {} --help", spec.name, error.get_option_name(), spec.name);
  } catch (const po::error& error) {
    fail_config("{}: {}; see {} --help", spec.name, error.what(), spec.name);
  }
  return values;
}

// True for words of commands that start other tools. People paste them together with the keys.
bool starts_other_tools(std::string_view word) {
  for (const char* name :
       {"swift", "sft", "pt",       "rlhf",      "infer",      "megatron", "llamafactory-cli", "train",   "trl",    "axolotl",
        "tune",  "run", "torchrun", "deepspeed", "accelerate", "launch",   "python",           "python3", "mpirun", "srun"})
    if (word == name) return true;
  return word.ends_with(".py") || word.ends_with(".sh");
}

// Folders on the command line without a key: adapters and a model.
class Folders {
 public:
  Folders(const CommandSpec& spec, const Dialects& dialects) : spec_(spec), dialects_(dialects) {}

  void add(const std::string& folder) {
    const std::filesystem::path dir = folder;
    std::error_code code;
    const auto has = [&](const char* file) { return std::filesystem::is_regular_file(dir / file, code); };
    if (has("adapter_config.json")) return adapters_.push_back(folder);
    if (!has("config.json"))
      fail_config("{}: the folder '{}' holds no adapter (adapter_config.json) and no model (config.json): name another folder{}",
                  spec_.name, folder, has(kSavedRun) ? "; its run has not written a result yet, but may have checkpoints" : "");
    if (!model_.empty()) fail_config("{}: '{}' and '{}' are both models: give only one", spec_.name, model_, folder);
    model_ = folder;
  }
  void put_before(std::vector<std::string>& overrides, bool alone) const {
    if (adapters_.empty() && model_.empty()) return;
    std::vector<std::string> keys;
    for (const std::string& typed : overrides) {
      const std::string key = keys.emplace_back(own_name(override_setting(typed).key));
      const bool again =
          (key == "adapter_name_or_path" && !adapters_.empty()) || (key == "model_name_or_path" && !model_.empty());
      if (again)
        fail_config("{}: the folder '{}' and {} are both given: keep one", spec_.name,
                    key.starts_with("adapter") ? adapters_.front() : model_, typed);
    }
    std::vector<std::string> settings;
    if (!adapters_.empty()) settings.push_back("adapter_name_or_path=" + nlohmann::json(adapters_).dump());
    if (!model_.empty()) settings.push_back("model_name_or_path=" + model_);
    if (alone) add_defaults(keys, settings);
    overrides.insert(overrides.begin(), settings.begin(), settings.end());
  }

 private:
  std::string own_name(const std::string& key) const {
    const auto foreign = dialects_.find(key);
    return foreign && foreign->renames ? std::string(foreign->own) : key;
  }
  /// Without a run file, evaluates the run's held-out data and exports to a folder beside the given one.
  void add_defaults(const std::vector<std::string>& keys, std::vector<std::string>& settings) const {
    const auto given = [&](std::initializer_list<std::string_view> names) {
      return std::ranges::any_of(names, [&](std::string_view name) { return std::ranges::find(keys, name) != keys.end(); });
    };
    std::string folder = adapters_.empty() ? model_ : adapters_.back();
    while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
    const bool evaluates = spec_.purpose == Purpose::eval;
    if (evaluates && !given({"dataset", "eval_dataset", "pack", "eval_pack", "load_data_args"}))
      settings.emplace_back("load_data_args=true");
    if (evaluates && !given({"output_dir"})) settings.push_back("output_dir=" + folder + "-eval");
    if (spec_.purpose == Purpose::export_model && !given({"export_dir", "output_dir"}))
      settings.push_back("export_dir=" + folder + "-merged");
  }

  const CommandSpec& spec_;
  const Dialects& dialects_;
  std::vector<std::string> adapters_;
  std::string model_;
};

// Sorts the arguments into run file, overrides, folders and words.
void sort_arguments(const CommandSpec& spec, const std::vector<std::string>& arguments, CommandLine& line) {
  std::error_code code;
  Folders folders(spec, *line.dialects);
  for (const std::string& argument : arguments) {
    const bool configurable = spec.run_file != RunFile::none;
    const std::size_t sign = argument.find('=');
    const bool is_override = sign != std::string::npos && argument.find('/') > sign;
    if (configurable && (is_override || argument.starts_with("--"))) {
      line.overrides.push_back(argument);
    } else if (configurable && line.run_file.empty() && is_run_file(argument)) {
      line.run_file = argument;
    } else if (configurable && uses_models(spec.purpose) && std::filesystem::is_directory(argument, code)) {
      folders.add(argument);
    } else if (!spec.words.empty()) {
      line.words.push_back(argument);
    } else if (configurable && is_run_file(argument)) {
      fail_config("{}: there are two run files, {} and {}: give one, and change its keys with key=value or --key value",
                  spec.name, line.run_file.string(), argument);
    } else if (configurable && starts_other_tools(argument)) {
      fail_config(
          "{}: '{}' is part of another tool's command: remove it and keep the keys after it; mpirun -np N or srun starts the "
          "ranks",
          spec.name, argument);
    } else {
      if (configurable && std::filesystem::is_regular_file(std::filesystem::path(argument) / kSavedRun, code))
        fail_config("{}: '{}' is the folder of a run: give its run.json to repeat it, as in {} {}", spec.name, argument,
                    spec.name, (std::filesystem::path(argument) / kSavedRun).string());
      fail_config("{}: unexpected argument '{}'{}\nusage: {}", spec.name, argument,
                  configurable ? ": run files end in .yaml, .yml or .json; write keys as key=value or --key value, and put a "
                                 "value with blanks in quotes"
                               : "",
                  usage_of(spec));
    }
  }
  folders.put_before(line.overrides, line.run_file.empty());
  if (spec.run_file == RunFile::required && line.run_file.empty() && line.overrides.empty()) {
    fail_config(
        "{}: the run file (.yaml, .yml or .json) is missing: give one, or its keys as --key "
        "value\nusage: {}",
        spec.name, usage_of(spec));
  }
  if (line.words.size() < spec.min_words) {
    fail_config("{}: expected at least {} of {}\nusage: {}", spec.name, spec.min_words, spec.words, usage_of(spec));
  }
}

}  // namespace

std::string usage_of(const CommandSpec& spec) {
  std::string text = spec.name;
  if (spec.run_file != RunFile::none) {
    text += uses_models(spec.purpose) ? " [RUN.yaml | FOLDER]" : " [RUN.yaml]";
  }
  if (!spec.words.empty()) text += " " + spec.words;
  if (spec.run_file != RunFile::none) text += " [key=value | --key value ...]";
  return text + " [options]";
}

po::options_description visible_options(const CommandSpec& spec) {
  po::options_description all;
  if (!spec.options.options().empty()) all.add(spec.options);
  po::options_description common("common options");
  common.add_options()("help,h", "print this help and exit")("version", "print the version and exit")(
      "log-level", po::value<std::string>(), fmt::format("{}", fmt::join(log::kSeverityNames, ", ")).c_str());
  if (spec.machine_readable) common.add_options()("json", "print results as JSON");
  all.add(common);
  return all;
}

std::string help_of(const CommandSpec& spec) {
  std::ostringstream out;
  out << "usage: " << usage_of(spec) << "\n\n" << spec.summary << "\n" << visible_options(spec);
  if (spec.run_file != RunFile::none) {
    out << "\n"
           "Keys of RUN.yaml, with [default]. Override them on the command line with key=value, --key value or --key (true):\n"
           "\n"
        << help_text(spec.purpose);
  }
  return out.str();
}

void log_notes(RunConfig& config) {
  for (const std::string& note : config.notes) log::info("note: {}", note);
  config.notes.clear();
}

RunConfig start(const CommandLine& line, Purpose purpose, int rank, int ranks) {
  std::error_code code;
  if (!line.run_file.empty() && std::filesystem::file_size(line.run_file, code) == 0 && !code)
    fail_config("{} is empty: was it saved? A run file has lines such as 'stage: sft'; configs/ has examples",
                line.run_file.string());
  RunConfig config = line.load(purpose);
  const log::Severity level = line.log_level.value_or(log::parse_severity(config.training.log_level));
  log::init({level, rank, ranks});
  follow_links(config.model.follow_links);
  const bool lasts = purpose == Purpose::train || purpose == Purpose::eval || purpose == Purpose::pack;
  if (lasts && !config.training.log_dir.empty()) log::open_file(config.training.log_dir, level);
  log_notes(config);
  return config;
}

std::optional<CommandLine> parse_command_line(const CommandSpec& spec, int argc, const char* const* argv, int first,
                                              const Dialects& dialects) {
  std::vector<std::string> arguments(argv + std::min(first, argc), argv + argc);
  std::vector<std::string> rest;
  if (spec.run_file != RunFile::none) {
    Arguments sorted = sort_options(arguments, visible_options(spec), spec.name, dialects);
    arguments = std::move(sorted.program);
    rest = std::move(sorted.rest);
  }
  CommandLine line;
  line.dialects = &dialects;
  line.options = parse(spec, arguments);
  if (line.options.count("help") != 0) {
    std::cout << help_of(spec) << std::flush;
    return std::nullopt;
  }
  if (line.options.count("version") != 0) {
    std::cout << spec.name << " " << version() << std::endl;
    return std::nullopt;
  }
  line.json = spec.machine_readable && line.options.count("json") != 0;
  if (line.options.count("log-level") != 0) {
    line.log_level = log::parse_severity(line.options["log-level"].as<std::string>());
  }
  if (line.options.count(kArguments) != 0) rest = line.options[kArguments].as<std::vector<std::string>>();
  sort_arguments(spec, rest, line);
  return line;
}

}  // namespace qft::config
