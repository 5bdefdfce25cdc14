#include "qft/comm/exchange.h"
#include "qft/train/save_model.h"

#include "subcommand.h"

namespace qft::apps {
namespace {

config::CommandSpec spec() {
  config::CommandSpec s;
  s.name = "qft export";
  s.summary = "merges the adapter into its base model and writes a Hugging Face directory to export_dir";
  s.run_file = config::CommandSpec::RunFile::required;
  s.purpose = config::Purpose::export_model;
  return s;
}

int run(comm::Session& session, const config::CommandLine& line) {
  const auto prepared = prepare(session, line, config::Purpose::export_model);
  comm::agreed(session.world(), [&] {
    if (session.rank() == 0) train::export_model(prepared.config, io::posix_storage());
  });
  return kExitOk;
}

}  // namespace

extern const Subcommand kExport{"export", spec, run};

}  // namespace qft::apps
