// What every subcommand of `qft` is: a description of its command line, and a function.
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

// One file each, named after the subcommand.
extern const Subcommand kTrain, kEval, kScore, kGenerate, kChat, kExport, kCheck, kSelftest, kBench, kPlan, kTrack, kWatch,
    kCompare, kFetch;

/// Loads the run file for `purpose`, sets the watchdog's timeout, the log's level, threads and allocator, and selects the
/// device.
struct Prepared {
  config::RunConfig config;
  c10::Device device = c10::kCPU;
};
Prepared prepare(comm::Session& session, const config::CommandLine& line, config::Purpose purpose);

/// Takes from a given pack the options that the run file leaves open, logs them, and refuses others.
/// Collective.
void take_pack_options(comm::Session& session, config::RunConfig& config, config::Purpose purpose);

}  // namespace qft::apps
