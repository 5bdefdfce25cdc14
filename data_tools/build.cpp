// qft-pack RUN.yaml --output PACK: encodes the datasets of a run file.
#include "qft/config/start.h"
#include "qft/core/error.h"
#include "qft/inputs/inputs.h"
#include "qft/job/watchdog.h"
#include "qft/pack/preprocess.h"

#include <iostream>

#include "command.h"
#include <boost/program_options/value_semantic.hpp>
#include <nlohmann/json.hpp>

namespace qft::pack_tool {
namespace {

namespace po = boost::program_options;

config::CommandSpec spec() {
  config::CommandSpec spec =
      make_spec("",
                "Encodes the datasets of a run file into a pack, on all cores, or under mpirun -np N on N ranks. Commands for "
                "packs: " +
                    command_names() + "; qft-pack COMMAND --help for details.",
                "[COMMAND PACK...]");
  spec.run_file = config::CommandSpec::RunFile::optional;
  spec.purpose = config::Purpose::pack;
  spec.options.add_options()("output,o", po::value<std::string>(), "the pack to write")("eval",
                                                                                        "pack eval_dataset instead of dataset")(
      "workers", po::value<int>(), "encoding threads in each rank, at most one per core [preprocessing_num_workers]");
  return spec;
}

int workers_of(const config::CommandLine& line, const config::RunConfig& config) {
  if (!line.options.count("workers")) return pack::default_workers(config);
  const int workers = line.options["workers"].as<int>();
  if (workers < 1 || workers > pack::kMaxWorkers) fail_config("--workers is {}: set it to 1 .. {}", workers, pack::kMaxWorkers);
  return workers;
}

int run(comm::Session& session, const config::CommandLine& line) {
  if (!line.words.empty())
    fail_config("qft-pack: '{}' is neither a run file (.yaml) nor one of {}", line.words.front(), command_names());
  config::RunConfig config = config::start(line, config::Purpose::pack, session.rank(), session.size());
  job::Watchdog::current().set({std::chrono::seconds(config.training.ddp_timeout)});
  inputs::fetch_and_stage(config, config::Purpose::pack, session);
  const std::string output = output_of(line, "qft-pack");
  const auto part = line.options.count("eval") ? pack::CorpusPart::eval : pack::CorpusPart::train;
  const pack::PackReport report = pack::pack_datasets(config, part, session.world(), output, workers_of(line, config));
  if (session.rank() != 0) return kExitOk;
  const pack::PackSummary& s = report.summary;
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

}  // namespace

const Command kBuild{"", spec, nullptr, run};

}  // namespace qft::pack_tool
