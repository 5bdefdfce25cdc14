// `qft SUBCOMMAND RUN.yaml [key=value ...]`: finds and runs the subcommand.
#include "qft/config/help.h"
#include "qft/config/nearest.h"
#include "qft/config/reference.h"
#include "qft/core/error.h"
#include "qft/core/file_ending.h"
#include "qft/core/program.h"
#include "qft/core/version.h"
#include "qft/device/backends.h"
#include "qft/device/device.h"
#include "qft/device/memory.h"
#include "qft/dialects/dialects.h"
#include "qft/job/run_main.h"
#include "qft/job/stop_signal.h"
#include "qft/model/config.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "subcommand.h"
#include <fmt/ranges.h>

namespace {

using namespace qft;  // NOLINT: a program

const apps::Subcommand* const kSubcommands[] = {
    &apps::kTrain, &apps::kEval,  &apps::kScore,   &apps::kGenerate, &apps::kChat,  &apps::kExport,   &apps::kFetch,
    &apps::kPlan,  &apps::kWatch, &apps::kCompare, &apps::kTrack,    &apps::kCheck, &apps::kSelftest, &apps::kBench};

/// Subcommands of LLaMA-Factory, ms-swift and TRL, and their equivalents in qft.
struct OtherCommand {
  std::string_view name, advice;
};
constexpr std::string_view kNoServer =
    "qft has no server and no web page: use qft chat to talk, and qft export to write a model for a server";
constexpr OtherCommand kOtherCommands[] = {{"sft", "use qft train"},
                                           {"finetune", "use qft train"},
                                           {"rlhf", "use qft train, with --rlhf_type or --stage"},
                                           {"dpo", "use qft train --stage dpo"},
                                           {"kto", "use qft train --stage kto"},
                                           {"reward", "use qft train --stage rm"},
                                           {"pt", "use qft train --stage pt"},
                                           {"megatron", "use qft train (or export) and the arguments after sft, pt or rlhf"},
                                           {"infer", "use qft chat, or qft eval for data"},
                                           {"predict", "use qft eval"},
                                           {"merge", "use qft export"},
                                           {"merge-lora", "use qft export"},
                                           {"pack", "use the program qft-pack"},
                                           {"env", "use qft check"},
                                           {"version", "use qft --version"},
                                           {"api", kNoServer},
                                           {"deploy", kNoServer},
                                           {"app", kNoServer},
                                           {"webui", kNoServer},
                                           {"webchat", kNoServer},
                                           {"web-ui", kNoServer}};

/// Suggests a subcommand for an unknown word.
std::string suggest(std::string_view word) {
  const auto* named = std::ranges::find(kOtherCommands, word, &OtherCommand::name);
  if (named != std::end(kOtherCommands)) return fmt::format("{}; ", named->advice);
  if (is_yaml_file(word)) return fmt::format("write the run file after the subcommand, as in qft train {}; ", word);
  std::vector<std::string_view> names;
  for (const auto* s : kSubcommands) names.emplace_back(s->name);
  const std::string_view near = config::nearest(word, names);
  return near.empty() ? "" : fmt::format("did you mean '{}'? ", near);
}

config::ProgramSpec describe_program() {
  config::ProgramSpec program{"qft", "distributed fine-tuning of Qwen-family models over MPI", {}, &dialects::all()};
  for (const auto* s : kSubcommands) program.commands.push_back(s->spec());
  return program;
}

void print_usage() {
  const config::ProgramSpec program = describe_program();
  std::printf("qft %s: %s\n\nusage: [mpirun -np N] qft SUBCOMMAND ...\n\n", std::string(version()).c_str(),
              program.summary.c_str());
  for (const auto* s : kSubcommands) std::printf("  %-10s %s\n", s->name, s->spec().summary.c_str());
  std::printf(
      "\n"
      "qft SUBCOMMAND --help lists its options and keys. qft help TOPIC prints:\n"
      "\n"
      "%s"
      "\n"
      "What is implemented:\n"
      "\n",
      config::list_topics(program).c_str());
  std::printf("%s", fmt::format("  {:<18} {}\n", "model_type", fmt::join(model::architectures(), ", ")).c_str());
  for (const char* key : {"stage", "pref_loss", "finetuning_type", "strategy", "optim", "lr_scheduler_type", "compute_dtype"})
    std::printf("%s", fmt::format("  {:<18} {}\n", key, fmt::join(config::implemented_values(key), ", ")).c_str());
}

std::optional<config::CommandLine> parse(const apps::Subcommand& command, std::span<const std::string> args) {
  std::vector<const char*> argv;
  for (const auto& a : args) argv.push_back(a.c_str());
  return config::parse_command_line(command.spec(), static_cast<int>(argv.size()), argv.data(), 1, dialects::all());
}

/// Runs a subcommand that uses one process.
int run_alone(const apps::Subcommand& command, std::span<const std::string> args) {
  if (const auto launched = launched_processes())
    fail_config("qft {} runs as one process, but the environment variable {} is {}: start it without a launcher", command.name,
                launched->variable, launched->count);
  const auto line = parse(command, args);
  return line ? command.run_alone(*line) : kExitOk;
}

bool is_help(std::string_view word) {
  return word == "--help" || word == "-h";
}

const apps::Subcommand* find_subcommand(std::string_view word) {
  const auto* const* found = std::ranges::find(kSubcommands, word, &apps::Subcommand::name);
  return found == std::end(kSubcommands) ? nullptr : *found;
}

/// Prints help or version without starting MPI. Returns nullopt for other command lines.
std::optional<int> print_text(std::span<const std::string> args) {
  const auto* command = args.empty() ? nullptr : find_subcommand(args[0]);
  const bool asks = !args.empty() && args[0] == "help" && args.size() > 1;
  const bool usage = !asks && (args.empty() || is_help(args[0]) || args[0] == "help"),
             version_only = !usage && args[0] == "--version";
  const bool help =
      command != nullptr && std::ranges::any_of(args, [](const std::string& a) { return is_help(a) || a == "--version"; });
  if (!usage && !version_only && !help && !asks) return std::nullopt;
  if (!is_first_process()) return args.empty() ? kExitUsage : kExitOk;
  if (asks) {
    std::printf("%s", config::help_on(args.subspan(1), describe_program()).c_str());
    return kExitOk;
  }
  if (help) return parse(*command, args) ? std::nullopt : std::optional<int>(kExitOk);
  if (usage)
    print_usage();
  else
    std::printf("qft %s\n%s\n%s", std::string(version()).c_str(), device::library_version().c_str(),
                device::describe_backends().c_str());
  return args.empty() ? kExitUsage : kExitOk;
}

int dispatch(comm::Session& session, std::span<const std::string> args) {
  if (const auto* command = find_subcommand(args[0])) {
    const auto line = parse(*command, args);
    if (line) device::load_backends();
    return line ? command->run(session, *line) : kExitOk;
  }
  std::vector<std::string_view> known;
  for (const auto* s : kSubcommands) known.emplace_back(s->name);
  fail_config("unknown subcommand '{}': {}the subcommands are {}", args[0], suggest(args[0]), fmt::join(known, ", "));
}

}  // namespace

int main(int argc, char** argv) {
  ignore_write_signals();
  const bool trains = argc > 1 && std::string_view(argv[1]) == apps::kTrain.name;
  if (trains) job::catch_stop_signals();  // programs without checkpoints end by the signal's default
  device::tune_allocator();
  if (trains) device::request_huge_pages();
  device::limit_kernel_caches();
  const std::vector<std::string> args(argv + std::min(1, argc), argv + argc);
  std::optional<int> printed;
  const int code = run_program([&] { return (printed = print_text(args)).value_or(kExitOk); });
  if (printed || code != kExitOk) quick_exit_program(code);
  if (const auto* command = find_subcommand(args[0]); command != nullptr && command->run_alone != nullptr)
    quick_exit_program(run_program([&] { return run_alone(*command, args); }));
  quick_exit_program(job::run_main(argc, argv, dispatch));
}
