// A subcommand of `qft`: a description of its command line, and a function.
#pragma once

#include "qft/comm/session.h"
#include "qft/config/command_line.h"
#include "qft/core/error.h"

#include <c10/core/Device.h>

namespace qft::apps {

struct Subcommand {
  const char* name;
  config::CommandSpec (*spec)();
  int (*run)(comm::Session&, const config::CommandLine&);
  int (*run_alone)(const config::CommandLine&) = nullptr;  ///< instead of `run`: one process, without MPI
};

// Each is in its own file, named after the subcommand.
extern const Subcommand kTrain, kEval, kScore, kGenerate, kChat, kExport, kCheck, kSelftest, kBench, kPlan, kTrack, kWatch,
    kCompare, kFetch;

/// The configuration and device that prepare() returns.
struct Prepared {
  config::RunConfig config;
  c10::Device device = c10::kCPU;
};
/// Loads the run file for `purpose`, fetches and stages its inputs, sets the watchdog's timeout, the log's level, threads and
/// numerics, and selects the device (except for `check`). Collective.
Prepared prepare(comm::Session& session, const config::CommandLine& line, config::Purpose purpose);

/// Takes options that the run file does not set from a given pack and logs them. Refuses contradicting options. Collective.
void take_pack_options(comm::Session& session, config::RunConfig& config, config::Purpose purpose);

}  // namespace qft::apps
