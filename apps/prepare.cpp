#include "qft/comm/exchange.h"
#include "qft/comm/session.h"
#include "qft/config/start.h"
#include "qft/core/log.h"
#include "qft/core/thread.h"
#include "qft/device/threads.h"
#include "qft/inputs/inputs.h"
#include "qft/job/watchdog.h"
#include "qft/pack/options.h"

#include <cstdlib>
#include <string_view>

#include "subcommand.h"
#include <ATen/Context.h>

namespace qft::apps {
namespace {

/// Threads that do not compute: for transfers, saves, the lock, logs, progress and trackers.
constexpr int kOwnThreads = 6;

}  // namespace

void take_pack_options(comm::Session& session, config::RunConfig& config, config::Purpose purpose) {
  comm::agreed(session.world(), [&] { pack::take_pack_options(config, purpose); });
  config::log_notes(config);
}

Prepared prepare(comm::Session& session, const config::CommandLine& line, config::Purpose purpose) {
  Prepared p;
  p.config = config::start(line, purpose, session.rank(), session.size());
  if (purpose == config::Purpose::generate && session.size() == 1) p.config.run_as_one_process();
  job::WatchdogOptions watch{std::chrono::seconds(p.config.training.ddp_timeout)};
  watch.stop_stragglers = p.config.training.straggler_action == "stop";
  job::Watchdog::current().set(watch);
  inputs::fetch_and_stage(p.config, purpose, session);
  config::log_notes(p.config);
  if (purpose == config::Purpose::train || purpose == config::Purpose::eval) take_pack_options(session, p.config, purpose);
  p.config.check_world(session.size());
  const char* asked = std::getenv("NPROC_PER_NODE");
  if (asked != nullptr && std::string_view(asked) != "1" && session.size() == 1)
    log::warn("only one rank runs although NPROC_PER_NODE is {}: qft does not read this variable; start qft with mpirun -np {}",
              asked, asked);
  const auto threads = device::plan_threads(device::cpu_share(), session.core_sharers(), session.local_size());
  require_threads(threads.threads + kOwnThreads);
  device::use_threads(threads.threads);
  if (!threads.advice.empty() && session.rank() == 0) log::warn("{}", threads.advice);
  // Always set: an earlier run of a sweep may have left the other value.
  device::set_matmul_precision(p.config.training.tf32.value_or(false) ? "high" : "highest");
  at::globalContext().setDeterministicAlgorithms(p.config.training.deterministic, /*warn_only=*/false);
  at::globalContext().setDeterministicFillUninitializedMemory(false);  // qft does not read uninitialised memory
  if (purpose != config::Purpose::check) p.device = comm::choose_device(session, p.config.training.use_cpu ? "cpu" : "auto");
  return p;
}

}  // namespace qft::apps
