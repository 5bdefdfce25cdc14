// qft-pack check RUN.yaml: looks for faults in the data before anything is packed.
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
                "Reads and encodes the datasets of a run file, writes nothing, and says what is wrong with "
                "them, how many "
                "tokens there are and how many steps they make. Exit code 1 where samples are faulty.",
                "");
  spec.run_file = config::CommandSpec::RunFile::required;
  spec.purpose = config::Purpose::pack;
  spec.options.add_options()("eval", "check eval_dataset instead of dataset")("ranks", po::value<int>()->default_value(1),
                                                                              "ranks that will train, for the number of steps");
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
