// `qft SUBCOMMAND RUN.yaml [key=value ...]`: finds the subcommand and hands over.
#include "qft/config/help.h"
#include "qft/config/nearest.h"
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

/// What subcommands of LLaMA-Factory, ms-swift and TRL are here.
struct Elsewhere {
  std::string_view name, here;
};
constexpr std::string_view kNoServer =
    "qft has no server and no web page: qft chat talks, qft export writes a model for a server";
constexpr Elsewhere kElsewhere[] = {{"sft", "here it is qft train"},
                                    {"finetune", "here it is qft train"},
                                    {"rlhf", "here it is qft train, with --rlhf_type or --stage"},
                                    {"dpo", "here it is qft train --stage dpo"},
                                    {"kto", "here it is qft train --stage kto"},
                                    {"reward", "here it is qft train --stage rm"},
                                    {"pt", "here it is qft train --stage pt"},
                                    {"infer", "here it is qft chat, or qft eval for data"},
                                    {"predict", "here it is qft eval"},
                                    {"merge", "here it is qft export"},
                                    {"merge-lora", "here it is qft export"},
                                    {"pack", "here it is the program qft-pack"},
                                    {"env", "here it is qft check"},
                                    {"version", "here it is qft --version"},
                                    {"api", kNoServer},
                                    {"deploy", kNoServer},
                                    {"app", kNoServer},
                                    {"webui", kNoServer},
                                    {"webchat", kNoServer},
                                    {"web-ui", kNoServer}};

/// What a word that is no subcommand was probably meant to be.
std::string meant(std::string_view word) {
  const auto* named = std::ranges::find(kElsewhere, word, &Elsewhere::name);
  if (named != std::end(kElsewhere)) return fmt::format("{}; ", named->here);
  if (word.ends_with(".yaml") || word.ends_with(".yml"))
    return fmt::format("a run file stands behind the subcommand, as in qft train {}; ", word);
  std::vector<std::string_view> names;
  for (const auto* s : kSubcommands) names.emplace_back(s->name);
  const std::string_view near = config::nearest(word, names);
  return near.empty() ? "" : fmt::format("did you mean '{}'? ", near);
}

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
  fail_config("unknown subcommand '{}': {}there are {}", args[0], meant(args[0]), known);
}

}  // namespace

int main(int argc, char** argv) {
  const bool trains = argc > 1 && std::string_view(argv[1]) == apps::kTrain.name;
  if (trains) job::catch_stop_signals();  // what has no checkpoint to commit ends as the signal says
  device::tune_allocator();
  if (trains) device::ask_for_huge_pages();
  device::bound_kernel_caches();
  for (const auto* s : kSubcommands)
    if (argc > 1 && s->run_alone != nullptr && std::string_view(argv[1]) == s->name) {
      const std::vector<std::string> args(argv + 1, argv + argc);
      end_program(run_program([&] { return run_alone(*s, args); }));
    }
  end_program(job::run_main(argc, argv, dispatch));
}
