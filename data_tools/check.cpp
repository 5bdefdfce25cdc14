// qft-pack check RUN.yaml: looks for faults in the data before packing.
#include "qft/config/start.h"
#include "qft/core/error.h"
#include "qft/loader/data_check.h"

#include <iostream>

#include "command.h"
#include <boost/program_options/value_semantic.hpp>

namespace qft::pack_tool {
namespace {

namespace po = boost::program_options;

config::CommandSpec spec() {
  config::CommandSpec spec =
      make_spec("check",
                "Reads and encodes the datasets of a run file without writing anything, and reports faults, the number of tokens "
                "and the number of steps. The exit code is 1 if samples have faults.",
                "");
  spec.run_file = config::CommandSpec::RunFile::required;
  spec.purpose = config::Purpose::pack;
  spec.options.add_options()("eval", "check eval_dataset instead of dataset")("ranks", po::value<int>()->default_value(1),

                                                                              "number of ranks in training, for the number "
                                                                              "of steps");
  return spec;
}

int run(const config::CommandLine& line) {
  const config::RunConfig config = config::start(line, config::Purpose::pack);
  const int ranks = line.options["ranks"].as<int>();
  if (ranks < 1) fail_config("--ranks is {}: set it to 1 or more", ranks);
  const auto part = line.options.count("eval") ? pack::CorpusPart::eval : pack::CorpusPart::train;
  const loader::DataReport report = loader::check_data(config, part, ranks);
  if (line.json)
    std::cout << report.to_json().dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  else
    std::cout << report.to_text();
  return report.has_faults() ? kExitFailed : kExitOk;
}

}  // namespace

const Command kCheck{"check", spec, run};

}  // namespace qft::pack_tool
