#include "qft/comm/preflight.h"
#include "qft/device/device.h"

#include <cstdio>

#include "subcommand.h"

namespace qft::apps {
namespace {

config::CommandSpec spec() {
  config::CommandSpec s;
  s.name = "qft check";
  s.summary = "looks at what would break or slow a job: versions, files, binding, memory, collectives";
  s.run_file = config::CommandSpec::RunFile::optional;
  s.machine_readable = true;
  return s;
}

// The keys whose files every rank needs.
std::vector<comm::NeededPath> needed_paths(const config::RunConfig& c) {
  using Use = comm::NeededPath::Use;
  std::vector<comm::NeededPath> paths;
  const auto add = [&](const char* key, const std::string& path, Use use) {
    if (!path.empty()) paths.push_back({key, path, use});
  };
  add("model_name_or_path", c.model.model_name_or_path, Use::read);
  add("tokenizer_name_or_path", c.model.tokenizer_name_or_path, Use::read);
  if (!c.data.dataset.empty()) add("dataset_dir", c.data.dataset_dir, Use::read);
  add("pack", c.data.pack, Use::read);
  add("eval_pack", c.data.eval_pack, Use::read);
  add("output_dir", c.training.output_dir, Use::write);
  return paths;
}

int run(comm::Session& session, const config::CommandLine& line) {
  comm::PreflightOptions options;
  if (line.run_file.empty() && line.overrides.empty()) {
    options.device = device::select_device("auto", session.local_rank(), session.local_size());
  } else {
    const auto prepared = prepare(session, line, config::Purpose::check);
    options.device = prepared.device;
    options.paths = needed_paths(prepared.config);
  }
  const auto report = comm::run_preflight(session, options);
  if (session.rank() == 0) {
    const auto text = line.json ? to_json(report).dump(2) + "\n" : to_text(report);
    std::fputs(text.c_str(), stdout);
  }
  return report.passed() ? kExitOk : kExitFailed;
}

}  // namespace

extern const Subcommand kCheck{"check", spec, run};

}  // namespace qft::apps
