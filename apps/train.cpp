#include "qft/config/start.h"
#include "qft/config/sweep.h"
#include "qft/core/log.h"
#include "qft/device/memory.h"
#include "qft/eval/evaluate.h"
#include "qft/train/sweep.h"
#include "qft/train/trainer.h"

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "subcommand.h"
#include <boost/program_options/value_semantic.hpp>

namespace qft::apps {
namespace {

config::CommandSpec spec() {
  config::CommandSpec s;
  s.name = "qft train";
  s.summary = "fine-tunes a model; if no pack is given, packs the datasets first, in parallel";
  s.run_file = config::CommandSpec::RunFile::required;
  s.purpose = config::Purpose::train;
  namespace po = boost::program_options;
  s.options.add_options()("sweep", po::value<std::vector<std::string>>()->composing()->value_name("KEY=A,B,..."),
                          "train one run per value, or per combination of values with several --sweep, one after another")(
      "sweep_index", po::value<long long>()->value_name("N"), "train only the N-th run of a sweep: for job arrays")(
      "sweep_list", "print the numbered runs of a sweep, and exit");
  return s;
}

/// Runs do_eval and do_predict without do_train.
void evaluate_only(const config::RunConfig& config, comm::Session& session, c10::Device device,
                   const eval::EvaluationParts& wanted) {
  const auto result = eval::evaluate(config, session.world(), device, wanted);
  if (session.rank() != 0) return;
  if (const auto& r = result.likelihood) log::info("{}  ({} samples, {:.1f} s)", r->scores(), r->items, r->seconds);
  if (result.scores) log::info("{}", eval::describe(*result.scores));
  if (result.answers) log::info("{}", eval::describe(*result.answers, config.training.output_dir));
  log::info("done: nothing was trained; results are in '{}'", config.training.output_dir);
}

int run_one(comm::Session& session, const config::CommandLine& line, const std::function<void()>& accepted = {}) {
  auto prepared = prepare(session, line, config::Purpose::train);
  const auto& t = prepared.config.training;
  if (!config::trains(prepared.config)) {
    evaluate_only(prepared.config, session, prepared.device, {.likelihood = t.do_eval, .answers = t.do_predict});
    return kExitOk;
  }
  device::reset_peak(prepared.device);  // an earlier run of a sweep had its own peak
  train::Trainer trainer(std::move(prepared.config), session, prepared.device, accepted);
  return trainer.run();
}

int run(comm::Session& session, const config::CommandLine& line) {
  const bool lists = line.options.count("sweep_list") > 0, one = line.options.count("sweep_index") > 0;
  if (line.options.count("sweep") == 0) {
    if (lists || one) fail_config("--sweep_{} needs --sweep key=value,...", lists ? "list" : "index");
    return run_one(session, line);
  }
  const auto runs = config::plan_sweep(line, line.options["sweep"].as<std::vector<std::string>>());
  if (lists && session.rank() == 0) std::printf("%s", train::list_sweep(runs).c_str());
  if (lists) return kExitOk;
  const train::TrainRun train = [&](const auto& typed, const auto& accepted) { return run_one(session, typed, accepted); };
  if (!one) return train::run_sweep(runs, session, train);
  return train::run_of_sweep(runs, config::sweep_run_of(runs, line.options["sweep_index"].as<long long>()), session, train);
}

}  // namespace

extern const Subcommand kTrain{"train", spec, run};

}  // namespace qft::apps
