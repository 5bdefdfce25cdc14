#include "qft/train/trainer.h"
#include "subcommand.h"

namespace qft::apps {
namespace {

config::CommandSpec spec() {
  config::CommandSpec s;
  s.name = "qft train";
  s.summary = "fine-tunes a model; packs the datasets first, in parallel, where no pack is given";
  s.run_file = config::CommandSpec::RunFile::required;
  return s;
}

int run(comm::Session& session, const config::CommandLine& line) {
  auto prepared = prepare(session, line, config::Purpose::train);
  train::Trainer trainer(std::move(prepared.config), session, prepared.device);
  return trainer.run();
}

}  // namespace

extern const Subcommand kTrain{"train", spec, run};

}  // namespace qft::apps
