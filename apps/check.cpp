// qft check [RUN.yaml] [--machine FILE] [--only PATTERN] [--json]: what would break or slow down a job.
#include "qft/check/check.h"

#include "qft/check/paths.h"
#include "qft/comm/device_choice.h"
#include "qft/plan/machine.h"
#include "qft/train/setup.h"

#include <cstdio>

#include "subcommand.h"

namespace qft::apps {
namespace {

namespace po = boost::program_options;

config::CommandSpec spec() {
  config::CommandSpec s;
  s.name = "qft check";
  s.summary =
      "finds in seconds what would break or slow down a job on these nodes: versions, files, output, GPUs, network, clocks, "
      "limits, "
      "collectives; with a run file also, without writing anything, all that qft train checks before its first step; a verdict a "
      "line, and at the end the nodes to leave out";
  s.run_file = config::CommandSpec::RunFile::optional;
  s.purpose = config::Purpose::check;
  s.machine_readable = true;
  s.options.add_options()("machine", po::value<std::string>(),
                          "what the network is known to reach: a machine as qft plan takes it, a name such as h100 or a file")(
      "only", po::value<std::string>()->default_value(""), "probes whose group/name has this regular expression");
  return s;
}

/// A file that says what to train on, or what to do with it: what `qft train` would do is looked at. Others name files only.
bool is_for_training(const config::RunConfig& c) {
  const bool data = !c.data.dataset.empty() || !c.data.pack.empty() || !c.data.eval_dataset.empty() || !c.data.eval_pack.empty();
  return data || c.training.do_train || !c.training.output_dir.empty();
}

/// Ranks that find no common device are a fault to be told among the others, which need none.
void choose_device(comm::Session& session, std::string_view wish, check::Options& options) {
  try {
    options.device = comm::choose_device(session, wish);
  } catch (const Error& e) {  // alike on all ranks
    options.device_error = e.what();
  }
}

check::RunForecast forecast_of(comm::Session& session, config::RunConfig config, c10::Device device) {
  take_pack_options(session, config, config::Purpose::train);
  train::RunPreview preview = train::check_run(config, session.world(), device);
  return {std::move(preview.lines), preview.checkpoint_bytes, preview.checkpoints, preview.result_bytes};
}

check::Options options_of(comm::Session& session, const config::CommandLine& line) {
  check::Options options;
  options.only = line.options["only"].as<std::string>();
  if (line.options.count("machine") > 0) {
    const auto machine = plan::find_machine(line.options["machine"].as<std::string>());
    options.expected = {machine.name, machine.network_gb_s * 1e9};
  }
  options.gpus = device::gpu_report();
  session.world().barrier();  // from here on ranks may have contexts on GPUs
  const bool has_run = !line.run_file.empty() || !line.overrides.empty();
  const auto config = has_run ? prepare(session, line, config::Purpose::check).config : config::RunConfig();
  options.use_cpu = config.training.use_cpu;
  choose_device(session, config.training.use_cpu ? "cpu" : "auto", options);
  if (!has_run) return options;
  options.paths = check::paths_of(config, session.world());
  if (is_for_training(config)) {
    config.validate(config::Purpose::train);
    options.run = [&session, config, device = options.device] { return forecast_of(session, config, device); };
  }
  return options;
}

int run(comm::Session& session, const config::CommandLine& line) {
  const bool prints = session.rank() == 0;
  const check::Options options = options_of(session, line);
  const check::Report report = check::run(session, options, [&](const check::Verdict& verdict) {
    if (!prints || line.json) return;
    std::fputs(to_text(verdict).c_str(), stdout);
    std::fflush(stdout);
  });
  if (prints) std::fputs(line.json ? (to_json(report).dump(2) + "\n").c_str() : summary(report).c_str(), stdout);
  std::fflush(stdout);
  if (report.refusal) std::rethrow_exception(report.refusal);  // its exit code is that of training
  return report.passed() ? kExitOk : kExitFailed;
}

}  // namespace

extern const Subcommand kCheck{"check", spec, run};

}  // namespace qft::apps
