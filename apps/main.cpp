// `qft SUBCOMMAND RUN.yaml [key=value ...]`: finds the subcommand and hands over.
#include "qft/config/help.h"
#include "qft/core/error.h"
#include "qft/core/program.h"
#include "qft/core/version.h"
#include "qft/device/backends.h"
#include "qft/device/device.h"
#include "qft/device/memory.h"
#include "qft/job/run_main.h"
#include "qft/job/stop_signal.h"
#include "qft/model/architectures.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "subcommand.h"
#include <fmt/ranges.h>

namespace {

using namespace qft;  // NOLINT: a program

const apps::Subcommand* const kSubcommands[] = {&apps::kTrain,  &apps::kEval,     &apps::kScore, &apps::kGenerate, &apps::kChat,
                                                &apps::kExport, &apps::kFetch,    &apps::kPlan,  &apps::kWatch,    &apps::kTrack,
                                                &apps::kCheck,  &apps::kSelftest, &apps::kBench};

/// What subcommands of LLaMA-Factory, ms-swift and TRL are called here.
struct Elsewhere {
  std::string_view name, here;
};
constexpr Elsewhere kElsewhere[] = {{"sft", "train"},           {"finetune", "train"},
                                    {"rlhf", "train"},          {"reward", "train --stage rm"},
                                    {"pt", "train --stage pt"}, {"infer", "chat, or eval for data"},
                                    {"predict", "eval"},        {"merge", "export"},
                                    {"merge-lora", "export"}};

void print_usage() {
  std::printf("qft %s: distributed fine-tuning of Qwen-family models over MPI\n\nusage: [mpirun -np N] qft SUBCOMMAND ...\n\n",
              std::string(version()).c_str());
  for (const auto* s : kSubcommands) std::printf("  %-10s %s\n", s->name, s->spec().summary.c_str());
  std::printf("\nqft SUBCOMMAND --help lists its options and keys.\n\nWhat is implemented:\n\n");
  std::printf("%s", fmt::format("  {:<18} {}\n", "model_type", fmt::join(model::architectures(), ", ")).c_str());
  for (const char* key : {"stage", "pref_loss", "finetuning_type", "strategy", "optim", "lr_scheduler_type", "compute_dtype"})
    std::printf("%s", fmt::format("  {:<18} {}\n", key, fmt::join(config::implemented(key), ", ")).c_str());
}

std::optional<config::CommandLine> parse(const apps::Subcommand& command, std::span<const std::string> args) {
  std::vector<const char*> argv;
  for (const auto& a : args) argv.push_back(a.c_str());
  return config::parse_command_line(command.spec(), static_cast<int>(argv.size()), argv.data());
}

/// A subcommand that is one process.
int run_alone(const apps::Subcommand& command, std::span<const std::string> args) {
  if (const char* ranks = std::getenv("OMPI_COMM_WORLD_SIZE"); ranks != nullptr && std::string_view(ranks) != "1")
    fail_config("qft {} runs as one process, not {}: leave mpirun out", command.name, ranks);
  const auto line = parse(command, args);
  return line ? command.run_alone(*line) : kExitOk;
}

int dispatch(comm::Session& session, std::span<const std::string> args) {
  const bool root = session.rank() == 0;
  if (args.empty() || args[0] == "--help" || args[0] == "-h" || args[0] == "help") {
    if (root) print_usage();
    return args.empty() ? kExitUsage : kExitOk;
  }
  if (args[0] == "--version") {
    if (root)
      std::printf("qft %s\n%s\n%s", std::string(version()).c_str(), device::library_version().c_str(),
                  device::describe_backends().c_str());
    return kExitOk;
  }
  std::string known;
  for (const auto* s : kSubcommands) {
    known += known.empty() ? s->name : std::string(", ") + s->name;
    if (args[0] != s->name) continue;
    const auto wants_text = [](const std::string& a) { return a == "--help" || a == "-h" || a == "--version"; };
    if (!root && std::any_of(args.begin(), args.end(), wants_text)) return kExitOk;
    const auto line = parse(*s, args);
    if (line) device::load_backends();
    return line ? s->run(session, *line) : kExitOk;
  }
  const auto* named = std::ranges::find(kElsewhere, args[0], &Elsewhere::name);
  fail_config("unknown subcommand '{}': {}use one of {}", args[0],
              named == std::end(kElsewhere) ? "" : fmt::format("here it is qft {}; ", named->here), known);
}

}  // namespace

int main(int argc, char** argv) {
  // What has no checkpoint to commit ends as the signal says.
  if (argc > 1 && std::string_view(argv[1]) == apps::kTrain.name) job::catch_stop_signals();
  device::tune_allocator();
  device::bound_kernel_caches();
  for (const auto* s : kSubcommands)
    if (argc > 1 && s->run_alone != nullptr && std::string_view(argv[1]) == s->name) {
      const std::vector<std::string> args(argv + 1, argv + argc);
      return run_program([&] { return run_alone(*s, args); });
    }
  return job::run_main(argc, argv, dispatch);
}
