// qft track OUTPUT_DIR: sends a run's missing data to trackers.
#include "qft/core/log.h"
#include "qft/track/tracking.h"

#include <cstdio>

#include "subcommand.h"

namespace qft::apps {
namespace {

namespace po = boost::program_options;

config::CommandSpec spec() {
  config::CommandSpec s;
  s.name = "qft track";
  s.summary =
      "sends a run's missing data to TensorBoard or MLflow: for runs on nodes that cannot reach the server, or after the server "
      "was down";
  s.words = "OUTPUT_DIR";
  s.min_words = 1;
  s.options.add_options()("to", po::value<std::vector<std::string>>()->multitoken(),
                          "tensorboard, mlflow, or both [the run's report_to]");
  return s;
}

int run(const config::CommandLine& line) {
  log::init({line.log_level.value_or(log::Severity::info)});
  std::vector<std::string> names;
  if (line.options.count("to") > 0) names = line.options["to"].as<std::vector<std::string>>();
  for (const std::string& dir : line.words)
    for (const std::string& said : track::send_run(dir, names)) std::printf("%s\n", said.c_str());
  return kExitOk;
}

}  // namespace

extern const Subcommand kTrack{"track", spec, nullptr, run};

}  // namespace qft::apps
