// qft check [RUN.yaml] [--machine FILE] [--only PATTERN] [--json]: finds problems that would break or slow down a job.
#include "qft/check/check.h"

#include "qft/check/paths.h"
#include "qft/comm/session.h"
#include "qft/plan/machine.h"
#include "qft/plan/resolve.h"
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
      "finds problems in seconds that would break or slow down a job on these nodes: versions, files, output, GPUs, network, "
      "clocks, limits, collectives; with a run file also everything that qft train checks before its first step, without writing "
      "anything; prints one verdict per line, and at the end the nodes to leave out";
  s.run_file = config::CommandSpec::RunFile::optional;
  s.purpose = config::Purpose::check;
  s.machine_readable = true;
  s.options.add_options()("machine", po::value<std::string>(),
                          "expected network speed: a machine for qft plan, by a name such as h100 or as a file")(
      "only", po::value<std::string>()->default_value(""),
      "run only probes with a group/name that matches this regular expression");
  s.choices["machine"] = plan::machine_names();
  return s;
}

/// True if the run file names data or a training task: then `qft check` also checks the steps of `qft train`.
bool is_for_training(const config::RunConfig& c) {
  const bool data = !c.data.dataset.empty() || !c.data.pack.empty() || !c.data.eval_dataset.empty() || !c.data.eval_pack.empty();
  return data || c.training.do_train || !c.training.output_dir.empty();
}

/// Ranks without a common device are reported like other faults: most probes need no device.
void choose_device(comm::Session& session, std::string_view wish, check::Options& options) {
  try {
    options.device = comm::choose_device(session, wish);
  } catch (const Error& e) {  // the same on all ranks
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
  session.world().barrier();  // after this, ranks may have GPU contexts
  const bool has_run = !line.run_file.empty() || !line.overrides.empty();
  const auto config = has_run ? prepare(session, line, config::Purpose::check).config : config::RunConfig();
  options.use_cpu = config.training.use_cpu;
  choose_device(session, config.training.use_cpu ? "cpu" : "auto", options);
  if (!has_run) return options;
  options.paths = check::paths_of(config, session.world());
  options.layout = plan::layout_words(config, session.size());
  if (is_for_training(config)) {
    config.validate(config::Purpose::train);
    options.run = [&session, config, device = options.device] { return forecast_of(session, config, device); };
  }
  return options;
}

/// Training's exit code. The verdict has the error's text.
int exit_code_of(const std::exception_ptr& refusal) {
  try {
    std::rethrow_exception(refusal);
  } catch (const Error& e) {
    return e.exit_code();
  }
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
  return report.refusal ? exit_code_of(report.refusal) : report.passed() ? kExitOk : kExitFailed;
}

}  // namespace

extern const Subcommand kCheck{"check", spec, run};

}  // namespace qft::apps
