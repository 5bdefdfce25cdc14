#include "qft/plan/plan.h"

#include "qft/config/start.h"
#include "qft/device/backends.h"
#include "qft/device/threads.h"
#include "qft/engine/data_setup.h"
#include "qft/engine/run_plan.h"
#include "qft/hub/fetch.h"
#include "qft/inputs/inputs.h"
#include "qft/pack/options.h"
#include "qft/plan/verdict.h"

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
      "predicts whether a run fits, the best micro-batch and the duration, and each strategy's memory, traffic and step time; of "
      "the model it only needs config.json";
  s.run_file = config::CommandSpec::RunFile::optional;
  s.purpose = config::Purpose::plan;
  s.machine_readable = true;
  s.options.add_options()("ranks", po::value<int>(), "number of ranks of the run")(
      "machine", po::value<std::string>(),
      "machine: a name such as h100, or a file from qft bench machine; append changed keys after commas: h100,network_gb_s=92; "
      "list: print the names");
  s.choices["machine"] = plan::machine_names();
  s.choices["machine"].emplace_back("list");
  return s;
}

plan::Workload workload(const config::RunConfig& config, int data_ranks, int item_sequences) {
  const auto lengths = engine::planned_data(config, data_ranks);
  if (!lengths) return plan::full_rows(config, data_ranks, item_sequences);
  return plan::workload_of(*lengths->schedule, *lengths->pack);
}

/// Locates the model and data that the run file names.
void complete(config::RunConfig& config) {
  inputs::find(config, config::Purpose::plan,
               [](const hub::Source& source, const hub::FileSelection& wanted) { return hub::locate(source, wanted); });
  pack::take_pack_options(config, config::Purpose::plan);
}

plan::Plan planned(const config::RunConfig& config, int ranks, const std::optional<plan::Machine>& machine,
                   const plan::Question& question = {}) {
  plan::RunPlan run = engine::plan_of(config, engine::ModelSource::read(config, engine::Use::training));
  plan::Workload work = workload(config, config.data_ranks(ranks), run.objective.item_sequences);
  return plan::make_plan(config, std::move(run), ranks, machine, std::move(work), plan::process_here(config), question);
}

int ranks_of(const config::CommandLine& line) {
  if (line.run_file.empty() && line.overrides.empty())
    fail_config(
        "qft plan: the run file (.yaml, .yml or .json) is missing: give one, or its keys as --key value; see qft plan --help");
  if (line.options.count("ranks") == 0)
    fail_config("qft plan: --ranks is missing: give the run's number of ranks, one per GPU, or one per socket on CPU nodes");
  const int ranks = line.options["ranks"].as<int>();
  if (ranks < 1) fail_config("--ranks is {}: set it to 1 or more", ranks);
  return ranks;
}

int run(const config::CommandLine& line) {
  const std::string named = line.options.count("machine") > 0 ? line.options["machine"].as<std::string>() : "";
  if (named == "list") {
    std::fputs(plan::list_machines().c_str(), stdout);
    return kExitOk;
  }
  const int ranks = ranks_of(line);
  device::load_backends();
  auto config = config::start(line, config::Purpose::plan);
  complete(config);
  config::log_notes(config);
  std::optional<plan::Machine> machine;
  if (!named.empty()) machine = plan::find_machine(named);
  if (machine && machine->threads_per_rank > 0 && std::getenv("OMP_NUM_THREADS") == nullptr)
    device::use_threads(static_cast<int>(machine->threads_per_rank));
  const plan::Plan result = planned(config, ranks, machine);
  log::init({.level = log::Severity::error});  // messages about the data were logged already
  const plan::Verdict verdict = plan::judge(result, config, [&](const plan::Variant& variant, const plan::Question& question) {
    config::CommandLine changed = line;
    changed.overrides.insert(changed.overrides.end(), variant.settings.begin(), variant.settings.end());
    config::RunConfig other = changed.load(config::Purpose::plan);
    if (variant.micro_batch > 0) other.training.per_device_train_batch_size = variant.micro_batch;
    if (variant.tensor > 0) {
      other.set_degrees(variant.tensor, variant.context);
      other.validate(config::Purpose::plan);
    }
    complete(other);
    return planned(other, variant.ranks, machine, question);
  });
  if (line.json) {
    nlohmann::ordered_json json = {{"verdict", plan::to_json(verdict)}};
    json.update(plan::to_json(result));
    std::fputs((json.dump(2) + "\n").c_str(), stdout);
  } else {
    std::fputs((plan::to_text(result, verdict) + "\n" + plan::to_text(result)).c_str(), stdout);
  }
  return kExitOk;
}

}  // namespace

extern const Subcommand kPlan{"plan", spec, nullptr, run};

}  // namespace qft::apps
