#include "qft/job/preflight.h"

#include "qft/comm/bandwidth.h"
#include "qft/comm/device_communicator.h"
#include "qft/comm/exchange.h"
#include "qft/core/error.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>

#include "preflight_parts.h"
#include <fmt/format.h>

namespace qft::job {

namespace {

using Level = Finding::Level;

// Slower than any network worth the name, so that a busy test machine is not called broken.
constexpr double kSlowMicroseconds = 1000;
constexpr double kBrokenMicroseconds = 100'000;
constexpr double kSlowGigabytes = 0.1;
constexpr double kBrokenGigabytes = 0.001;

// Ends the process if a stage takes too long: a broken network shows as a collective that never returns.
class StageLimit {
 public:
  StageLimit(const comm::Session& session, std::string stage, double seconds)
      : thread_([this, &session, stage = std::move(stage), seconds] {
          std::unique_lock lock(mutex_);
          if (over_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return done_; })) return;
          std::fputs(fmt::format("error on rank {} ({}): '{}' is not done after {:.0f} s: a rank or the "
                                 "network is stuck; try "
                                 "'mpirun --mca btl_tcp_if_include NETWORK', or fewer nodes, to find which\n",
                                 session.rank(), session.hostname(), stage, seconds)
                         .c_str(),
                     stderr);
          std::fflush(stderr);
          std::_Exit(kExitFailed);
        }) {}
  ~StageLimit() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    over_.notify_one();
    thread_.join();
  }
  StageLimit(const StageLimit&) = delete;
  StageLimit& operator=(const StageLimit&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable over_;
  bool done_ = false;
  std::thread thread_;
};

void check_values(comm::Communicator& comm, c10::Device device, std::vector<Finding>& findings) {
  std::string own;
  for (const auto& text : comm::verify_collectives(comm, device)) own += (own.empty() ? "" : "; ") + text;
  const auto texts = comm::all_gather_strings(comm, own);
  const auto topic = fmt::format("collectives ({})", comm.backend());
  bool fine = true;
  for (std::size_t r = 0; r < texts.size(); ++r) {
    if (texts[r].empty()) continue;
    fine = false;
    findings.push_back({Level::problem, topic, fmt::format("rank {}: {}", r, texts[r]),
                        "the communication library or the network changes data: try another transport (mpirun --mca pml ob1 "
                        "--mca btl tcp,self; NCCL_P2P_DISABLE=1)"});
  }
  if (fine) findings.push_back({Level::fine, topic, "values are right on all ranks", ""});
}

void judge_speed(const std::vector<comm::BandwidthRow>& rows, std::string_view backend, std::vector<Finding>& findings) {
  const double latency = rows.front().microseconds;
  const double rate = rows.back().bus_gb_s;
  const bool broken = latency > kBrokenMicroseconds || rate < kBrokenGigabytes;
  const bool slow = latency > kSlowMicroseconds || rate < kSlowGigabytes;
  findings.push_back({broken ? Level::problem
                      : slow ? Level::note
                             : Level::fine,
                      fmt::format("speed ({})", backend),
                      fmt::format("all_reduce: {:.1f} us for 8 bytes, bus bandwidth {:.3f} GB/s", latency, rate),
                      slow ? "check which network MPI uses (mpirun --mca btl_base_verbose 30; UCX_NET_DEVICES), and that "
                             "ranks do "
                             "not share cores"
                           : ""});
}

void check_communicator(comm::Session& session, comm::Communicator& comm, const PreflightOptions& options, c10::Device device,
                        PreflightReport& report) {
  {
    const StageLimit limit(session, fmt::format("collectives over {}", comm.backend()), options.stage_limit_seconds);
    check_values(comm, device, report.findings);
  }
  if (comm.size() == 1) return;
  std::vector<comm::BandwidthRow> rows;
  for (const auto bytes : comm::bandwidth_sizes(options.largest_message)) {
    const StageLimit limit(session, fmt::format("all_reduce of {} bytes over {}", bytes, comm.backend()),
                           options.stage_limit_seconds);
    rows.push_back(comm::measure(comm, device, comm::OpKind::all_reduce, bytes, 0.05));
  }
  judge_speed(rows, comm.backend(), report.findings);
  report.tables += fmt::format("\n{}", comm::format_table(comm::OpKind::all_reduce, rows));
  auto& table = report.details["all_reduce"][std::string(comm.backend())] = nlohmann::json::array();
  for (const auto& row : rows) table.push_back(to_json(row));
}

}  // namespace

bool PreflightReport::passed() const {
  return std::none_of(findings.begin(), findings.end(), [](const Finding& f) { return f.level == Level::problem; });
}

PreflightReport run_preflight(comm::Session& session, const PreflightOptions& options) {
  PreflightReport report;
  {
    const StageLimit limit(session, "comparing the ranks", options.stage_limit_seconds);
    std::vector<nlohmann::json> facts;
    for (const auto& text : comm::all_gather_strings(session.world(), gather_facts(session, options.device).dump())) {
      facts.push_back(nlohmann::json::parse(text));
    }
    compare_facts(facts, report.findings);
    report.tables = format_ranks_table(facts);
    report.details["ranks"] = facts;
  }
  {
    const StageLimit limit(session, "looking at files", options.stage_limit_seconds);
    check_paths(session, options.paths, report.findings);
  }
  check_communicator(session, session.world(), options, c10::kCPU, report);
  if (!options.device.is_cpu()) {
    const auto comm = comm::make_device_communicator(session.world(), options.device, "device");
    check_communicator(session, *comm, options, options.device, report);
  }
  return report;
}

std::string to_text(const Finding& f) {
  const char* mark = f.level == Level::fine ? "ok  " : f.level == Level::note ? "note" : "BAD ";
  return fmt::format("{}  {}: {}\n{}", mark, f.topic, f.text, f.advice.empty() ? "" : fmt::format("      -> {}\n", f.advice));
}

std::string to_text(const PreflightReport& report) {
  std::string text = report.tables + "\n";
  for (const Finding& finding : report.findings) text += to_text(finding);
  return text;
}

nlohmann::json to_json(const PreflightReport& report) {
  nlohmann::json findings = nlohmann::json::array();
  for (const auto& f : report.findings) {
    const char* level = f.level == Level::fine ? "ok" : f.level == Level::note ? "note" : "problem";
    findings.push_back({{"level", level}, {"topic", f.topic}, {"text", f.text}, {"advice", f.advice}});
  }
  auto json = report.details;
  json["passed"] = report.passed();
  json["findings"] = findings;
  return json;
}

}  // namespace qft::job
