// qft selftest [--device D] [--only PATTERN] [--json]: checks that this machine computes correctly.
#include "qft/selftest/selftest.h"

#include "qft/comm/session.h"
#include "qft/core/log.h"
#include "qft/device/backends.h"
#include "qft/device/device.h"
#include "qft/device/threads.h"
#include "qft/job/watchdog.h"

#include <chrono>
#include <cstdio>

#include "subcommand.h"
#include <nlohmann/json.hpp>

namespace qft::apps {
namespace {

namespace po = boost::program_options;

constexpr std::chrono::seconds kHung{120};  // normally a check takes seconds

config::CommandSpec spec() {
  config::CommandSpec s;
  s.name = "qft selftest";
  s.summary =
      "checks the operations of training and decoding on this machine's devices, alone or under mpirun, against the CPU in fp64: "
      "copies, kernels, attention, collectives, steps of a small model with each strategy, answers; needs no files";
  s.machine_readable = true;
  s.options.add_options()("device", po::value<std::string>()->default_value("auto"), device::device_words().c_str())(
      "only", po::value<std::string>()->default_value(""),
      "run only checks with a group/what/case that matches this regular expression");
  s.choices["device"] = device::kind_names();
  return s;
}

int run(comm::Session& session, const config::CommandLine& line) {
  log::init({line.log_level.value_or(log::Severity::warning), session.rank(), session.size()});
  job::Watchdog::current().set({.timeout = kHung});
  const auto threads = device::plan_threads(device::cpu_share(), session.core_sharers(), session.local_size());
  device::use_threads(threads.threads);
  selftest::Options options{.device = comm::choose_device(session, line.options["device"].as<std::string>()),
                            .only = line.options["only"].as<std::string>()};
  const bool prints = session.rank() == 0;
  bool first = true;
  if (prints && !line.json)
    options.on_row = [&](const selftest::Row& row) {
      if (std::exchange(first, false)) std::fputs(selftest::header().c_str(), stdout);
      std::fputs(selftest::to_text(row).c_str(), stdout);
      std::fflush(stdout);
    };
  const selftest::Report report = selftest::run(session, options);
  if (prints) std::printf("%s\n", line.json ? selftest::to_json(report).dump(2).c_str() : report.summary().c_str());
  return report.passed() ? kExitOk : kExitFailed;
}

}  // namespace

extern const Subcommand kSelftest{"selftest", spec, run};

}  // namespace qft::apps
