#include "qft/config/start.h"
#include "qft/core/log.h"
#include "qft/eval/evaluate.h"
#include "qft/train/trainer.h"

#include "subcommand.h"

namespace qft::apps {
namespace {

config::CommandSpec spec() {
  config::CommandSpec s;
  s.name = "qft train";
  s.summary = "fine-tunes a model; packs the datasets first, in parallel, where no pack is given";
  s.run_file = config::CommandSpec::RunFile::required;
  s.purpose = config::Purpose::train;
  return s;
}

/// do_eval and do_predict without do_train.
void evaluate_only(const config::RunConfig& config, comm::Session& session, c10::Device device, const eval::Wanted& wanted) {
  const auto result = eval::evaluate(config, session.world(), device, wanted);
  if (session.rank() != 0) return;
  if (const auto& r = result.likelihood) log::info("{}  ({} samples, {:.1f} s)", r->scores(), r->items, r->seconds);
  if (result.scores) log::info("{}", eval::describe(*result.scores));
  if (result.answers) log::info("{}", eval::describe(*result.answers, config.training.output_dir));
  log::info("done: nothing was trained; results in '{}'", config.training.output_dir);
}

int run(comm::Session& session, const config::CommandLine& line) {
  auto prepared = prepare(session, line, config::Purpose::train);
  const auto& t = prepared.config.training;
  if (!config::trains(prepared.config)) {
    evaluate_only(prepared.config, session, prepared.device, {.likelihood = t.do_eval, .answers = t.do_predict});
    return kExitOk;
  }
  train::Trainer trainer(std::move(prepared.config), session, prepared.device);
  return trainer.run();
}

}  // namespace

extern const Subcommand kTrain{"train", spec, run};

}  // namespace qft::apps
