#include "qft/comm/device_choice.h"
#include "qft/job/preflight.h"
#include "qft/train/setup.h"

#include <cstdio>
#include <filesystem>

#include "subcommand.h"

namespace qft::apps {
namespace {

config::CommandSpec spec() {
  config::CommandSpec s;
  s.name = "qft check";
  s.summary =
      "checks what would break or slow down a job: versions, files, core binding, memory, collectives; with a run file also, "
      "without "
      "writing anything, all that qft train checks before its first step: data, template, LoRA targets, packs, the checkpoint to "
      "resume "
      "from, memory";
  s.run_file = config::CommandSpec::RunFile::optional;
  s.purpose = config::Purpose::check;
  s.machine_readable = true;
  return s;
}

// The keys whose files every rank needs.
std::vector<job::NeededPath> needed_paths(const config::RunConfig& c) {
  using Use = job::NeededPath::Use;
  std::vector<job::NeededPath> paths;
  const auto add = [&](const char* key, const std::string& path, Use use) {
    if (!path.empty()) paths.push_back({key, path, use});
  };
  add("model_name_or_path", c.model.model_name_or_path, Use::read);
  add("tokenizer_name_or_path", c.model.tokenizer_name_or_path, Use::read);
  for (const std::string& name : c.data.dataset) {
    const std::string file = name.substr(0, name.rfind('#'));  // a file or folder, else an entry of dataset_info.json
    const bool is_path = std::filesystem::exists(file);
    add(is_path ? "dataset" : "dataset_dir", is_path ? file : c.data.dataset_dir, Use::read);
  }
  add("pack", c.data.pack, Use::read);
  add("eval_pack", c.data.eval_pack, Use::read);
  add("output_dir", c.training.output_dir, Use::write);
  return paths;
}

/// A file that says what to train on, or what to do with it: what `qft train` would do is looked at. Others name files only.
bool is_for_training(const config::RunConfig& c) {
  const bool data = !c.data.dataset.empty() || !c.data.pack.empty() || !c.data.eval_dataset.empty() || !c.data.eval_pack.empty();
  return data || c.training.do_train || !c.training.output_dir.empty();
}

int run(comm::Session& session, const config::CommandLine& line) {
  job::PreflightOptions options;
  std::optional<Prepared> prepared;
  if (line.run_file.empty() && line.overrides.empty()) {
    options.device = comm::choose_device(session, "auto");
  } else {
    prepared = prepare(session, line, config::Purpose::check);
    options.device = prepared->device;
    options.paths = needed_paths(prepared->config);
  }
  const bool trains = prepared && is_for_training(prepared->config);
  if (trains) prepared->config.validate(config::Purpose::train);
  auto report = job::run_preflight(session, options);
  const bool root = session.rank() == 0, passed = report.passed();
  if (root && !line.json) std::fputs(to_text(report).c_str(), stdout), std::fflush(stdout);
  const auto found = [&](job::Finding::Level level, const std::string& text) {
    report.findings.push_back({level, "run", text, {}});
    if (root && !line.json) std::fputs(to_text(report.findings.back()).c_str(), stdout);
  };
  const auto conclude = [&] {
    if (root)
      std::printf("%s\n", line.json ? to_json(report).dump(2).c_str() : report.passed() ? "check passed" : "check failed");
  };
  if (passed && trains) {
    try {
      take_pack_options(session, prepared->config, config::Purpose::train);
      for (const std::string& text : train::check_run(prepared->config, session.world(), prepared->device))
        found(job::Finding::Level::fine, text);
    } catch (const Error& e) {  // alike on all ranks; its exit code is that of training
      found(job::Finding::Level::problem, e.what());
      conclude();
      throw;
    }
  }
  conclude();
  return passed ? kExitOk : kExitFailed;
}

}  // namespace

extern const Subcommand kCheck{"check", spec, run};

}  // namespace qft::apps
