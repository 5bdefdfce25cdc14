#include "qft/plan/plan.h"

#include "qft/config/start.h"
#include "qft/device/backends.h"
#include "qft/device/threads.h"
#include "qft/engine/data_setup.h"
#include "qft/engine/recipe.h"
#include "qft/hub/fetch.h"
#include "qft/inputs/inputs.h"
#include "qft/pack/options.h"

#include <cstdio>
#include <cstdlib>

#include "subcommand.h"
#include <nlohmann/json.hpp>

namespace qft::apps {
namespace {

namespace po = boost::program_options;

config::CommandSpec spec() {
  config::CommandSpec s;
  s.name = "qft plan";
  s.summary =
      "predicts memory, traffic and step time of each strategy, with and without breadth-first micro-batches; of the model it "
      "reads config.json only";
  s.run_file = config::CommandSpec::RunFile::required;
  s.purpose = config::Purpose::plan;
  s.machine_readable = true;
  s.options.add_options()("ranks", po::value<int>()->required(), "ranks that the run will have")(
      "machine", po::value<std::string>(), "description of the machine (configs/machines, or written by qft bench machine)");
  return s;
}

plan::Workload workload(const config::RunConfig& config, int ranks, int item_sequences) {
  const auto lengths = engine::planned_data(config, ranks);
  if (!lengths) return plan::full_rows(config, ranks, item_sequences);
  return plan::workload_of(*lengths->schedule, *lengths->pack);
}

int run(const config::CommandLine& line) {
  device::load_backends();
  auto config = config::start(line, config::Purpose::plan);
  inputs::find(config, config::Purpose::plan,
               [](const hub::Source& source, const hub::Wanted& wanted) { return hub::locate(source, wanted); });
  pack::take_pack_options(config, config::Purpose::plan);
  config::say_notes(config);
  const int ranks = line.options["ranks"].as<int>();
  if (ranks < 1) fail_config("--ranks {}: at least 1", ranks);
  std::optional<plan::Machine> machine;
  if (line.options.count("machine") > 0) machine = plan::Machine::load(line.options["machine"].as<std::string>());
  if (machine && machine->threads_per_rank > 0 && std::getenv("OMP_NUM_THREADS") == nullptr)
    device::use_threads(static_cast<int>(machine->threads_per_rank));
  plan::Recipe recipe = engine::recipe_of(config);
  plan::Workload work = workload(config, ranks, recipe.objective.item_sequences);
  const auto result = plan::make_plan(config, std::move(recipe), ranks, machine, std::move(work), plan::process_here(config));
  const std::string text = line.json ? plan::to_json(result).dump(2) + "\n" : plan::to_text(result);
  std::fputs(text.c_str(), stdout);
  return kExitOk;
}

}  // namespace

extern const Subcommand kPlan{"plan", spec, nullptr, run};

}  // namespace qft::apps
