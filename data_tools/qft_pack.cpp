// qft-pack: datasets into a pack file, in parallel under mpirun; and what is in a pack.
#include "qft/comm/session.h"
#include "qft/config/command_line.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/core/progress.h"
#include "qft/data/pack_print.h"
#include "qft/data/preprocess.h"

#include <algorithm>
#include <iostream>
#include <limits>
#include <string>

#include <boost/program_options/value_semantic.hpp>

namespace {

using namespace qft;  // NOLINT: a program
namespace po = boost::program_options;

struct Command {
  std::string_view name;
  int (*run)(const data::PackReader& pack, const config::CommandLine& line);
};

int inspect(const data::PackReader& pack, const config::CommandLine& line) {
  std::cout << (line.json ? data::summarize(pack).dump(2) + "\n" : data::format_summary(pack));
  return kExitOk;
}

int verify(const data::PackReader& pack, const config::CommandLine& line) {
  Progress bar("verifying", pack.num_items());
  pack.verify([&](std::int64_t done) { bar.update(done); });
  bar.clear();
  if (line.json)
    std::cout << nlohmann::ordered_json{{"path", pack.path().string()},
                                        {"items", pack.num_items()},
                                        {"ok", true}}
              << "\n";
  else
    std::cout << pack.path().string() << ": " << pack.num_items() << " items, all whole\n";
  return kExitOk;
}

int print_items(const data::PackReader& pack, std::int64_t count) {
  std::ios::sync_with_stdio(false);
  data::write_json_lines(pack, 0, count, std::cout);
  std::cout.flush();
  require(std::cout.good(), "cannot write the items to stdout");
  return kExitOk;
}

int export_items(const data::PackReader& pack, const config::CommandLine&) {
  return print_items(pack, pack.num_items());
}

int head(const data::PackReader& pack, const config::CommandLine& line) {
  return print_items(pack, line.options["items"].as<std::int64_t>());
}

constexpr Command kCommands[] = {
    {"inspect", inspect}, {"verify", verify}, {"export", export_items}, {"head", head}};

config::CommandSpec make_spec() {
  config::CommandSpec spec;
  spec.name = "qft-pack";
  spec.summary =
      "Encodes the datasets of a run file into a pack (mpirun -np N does it on N ranks), or shows what is in "
      "one: "
      "inspect (contract and counts), verify (every checksum), export (all items as JSON lines), head (the "
      "first ones).";
  spec.run_file = config::CommandSpec::RunFile::optional;
  spec.words = "[inspect|verify|export|head PACK...]";
  spec.machine_readable = true;
  spec.options.add_options()("output,o", po::value<std::string>(), "the pack to write")(
      "eval", "pack eval_dataset instead of dataset")("items", po::value<std::int64_t>()->default_value(3),
                                                      "how many items head prints");
  return spec;
}

const Command* find_command(std::string_view name) {
  const auto* command = std::find_if(std::begin(kCommands), std::end(kCommands),
                                     [&](const Command& c) { return c.name == name; });
  return command == std::end(kCommands) ? nullptr : command;
}

// Reads packs: one process, no MPI.
int run_command(const config::CommandLine& line) {
  const Command& command = *find_command(line.words.front());
  if (line.words.size() < 2) fail_config("qft-pack {}: which pack?", command.name);
  if (line.options.count("output")) fail_config("qft-pack {}: --output goes with a run file", command.name);
  for (std::size_t i = 1; i < line.words.size(); ++i)
    if (const int code = command.run(*data::PackReader::open(line.words[i]), line); code != kExitOk)
      return code;
  return kExitOk;
}

int pack(comm::Session& session, const config::CommandLine& line) {
  if (!line.words.empty())
    fail_config("qft-pack: '{}' is neither a run file (.yaml) nor one of inspect, verify, export, head",
                line.words.front());
  const config::RunConfig config = line.load(config::Purpose::pack);
  log::init({line.log_level.value_or(log::parse_severity(config.training.log_level)), session.rank(),
             session.size()});
  if (!line.options.count("output"))
    fail_config("qft-pack: --output is missing: the pack to write, for instance --output train.h5");
  const std::string output = line.options["output"].as<std::string>();
  const auto part = line.options.count("eval") ? data::CorpusPart::eval : data::CorpusPart::train;
  const data::PackReport report = data::pack_datasets(config, part, session.world(), output);
  if (session.rank() != 0) return kExitOk;
  const data::PackSummary& s = report.summary;
  if (line.json)
    std::cout << nlohmann::ordered_json{{"path", output},           {"was_current", report.was_current},
                                        {"items", s.items},         {"sequences", s.sequences},
                                        {"tokens", s.tokens},       {"label_tokens", s.labels},
                                        {"records", s.records},     {"dropped", s.dropped},
                                        {"truncated", s.truncated}, {"bytes", s.file_bytes}}
              << "\n";
  else
    std::cout << output << ": " << s.items << " items, " << s.tokens << " tokens"
              << (report.was_current ? ", up to date\n" : "\n");
  return kExitOk;
}

bool asks_for_text(std::span<const std::string> arguments) {
  return std::any_of(arguments.begin(), arguments.end(),
                     [](const std::string& a) { return a == "--help" || a == "-h" || a == "--version"; });
}

}  // namespace

int main(int argc, char** argv) {
  log::init({});
  if (argc > 1 && find_command(argv[1])) {
    try {
      const auto line = config::parse_command_line(make_spec(), argc, argv);
      return line ? run_command(*line) : kExitOk;
    } catch (const std::exception& error) {
      std::cerr << "qft-pack: " << error.what() << "\n";
      const auto* known = dynamic_cast<const Error*>(&error);
      return known ? known->exit_code() : static_cast<int>(kExitFailed);
    }
  }
  return comm::run_main(argc, argv,
                        [&](comm::Session& session, std::span<const std::string> arguments) -> int {
                          if (session.rank() != 0 && asks_for_text(arguments)) return kExitOk;
                          const auto line = config::parse_command_line(make_spec(), argc, argv);
                          if (!line) return kExitOk;
                          if (!line->words.empty() &&
                              find_command(line->words.front()))  // after an option, as in "--json inspect"
                            return session.rank() == 0 ? run_command(*line) : static_cast<int>(kExitOk);
                          return pack(session, *line);
                        });
}
