#include "qft/check/check.h"

#include "qft/comm/exchange.h"
#include "qft/core/error.h"
#include "qft/core/units.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <regex>
#include <thread>
#include <utility>

#include "probe.h"

namespace qft::check {
namespace {

constexpr const char* kFailure = "gathering failed";  // a rank's fact if its gatherer threw

// Ends the process if a probe takes too long: on a broken network a collective may never return.
class StallTimeout {
 public:
  StallTimeout(const comm::Session& session, std::string probe, double seconds)
      : thread_([this, &session, probe = std::move(probe), seconds] {
          std::unique_lock lock(mutex_);
          if (over_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return done_; })) return;
          std::fputs(
              fmt::format(
                  "error on rank {} ({}): the probe '{}' is not done after {:.0f} s; this rank {}. A rank, a file system or "
                  "the network is stuck; to find which, try 'mpirun --mca btl_tcp_if_include NETWORK', or fewer nodes\n",
                  session.rank(), session.hostname(), probe, seconds, state_)
                  .c_str(),
              stderr);
          std::fflush(stderr);
          std::_Exit(kExitFailed);
        }) {}
  ~StallTimeout() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    over_.notify_one();
    thread_.join();
  }
  /// Sets this rank's state for the message: "has failed: ...".
  void note(std::string state) {
    const std::lock_guard lock(mutex_);
    state_ = std::move(state);
  }
  StallTimeout(const StallTimeout&) = delete;
  StallTimeout& operator=(const StallTimeout&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable over_;
  bool done_ = false;
  std::string state_ = "still runs it";
  std::thread thread_;
};

std::vector<const Probe*> wanted_probes(const std::string& only) {
  std::vector<const Probe*> wanted;
  try {
    const std::regex pattern(only, std::regex::icase);
    for (const Probe& probe : probes())
      if (only.empty() || std::regex_search(fmt::format("{}/{}", probe.group, probe.name), pattern)) wanted.push_back(&probe);
  } catch (const std::regex_error& e) {
    fail_config("--only '{}' is not a regular expression ({}): give a part of a probe's name, such as 'network' or 'MTU'", only,
                e.what());
  }
  if (wanted.empty())
    fail_config("--only '{}' matches no probe: examples of names are 'network/MTU', 'files/files', 'gpu/'", only);
  return wanted;
}

std::vector<Place> places_of(comm::Session& session) {
  const Json mine = {session.hostname(), session.node(), session.local_rank()};
  std::vector<Place> places;
  for (const auto& text : comm::all_gather_strings(session.world(), mine.dump())) {
    const Json place = Json::parse(text);
    places.push_back({place[0], place[1], place[2]});
  }
  return places;
}

Json gather_here(const Probe& probe, Context& context) {
  try {
    return probe.gather(context);
  } catch (const std::exception& e) {
    return {{kFailure, e.what()}};
  }
}

std::vector<Json> gather_all(const Probe& probe, Context& context) {
  std::optional<StallTimeout> stall_timeout;  // not for the run: it reads all of its data, and the watchdog watches it
  if (probe.gather != gather_run) stall_timeout.emplace(context.session, probe.name, context.options.stall_timeout_seconds);
  std::vector<Json> all;
  const Json facts = gather_here(probe, context);
  if (stall_timeout)
    stall_timeout->note(facts.contains(kFailure) ? fmt::format("has failed: {}", facts.at(kFailure).get<std::string>())
                                                 : std::string("has done its part and waits for other ranks"));
  const std::string mine = facts.dump(-1, ' ', false, Json::error_handler_t::replace);
  for (const auto& text : comm::all_gather_strings(context.session.world(), mine)) all.push_back(Json::parse(text));
  return all;
}

/// Reports gatherers that threw. Returns true if there were any; then there is nothing to judge.
bool judge_failures(const Facts& facts, Judgement& out) {
  std::vector<int> ranks;
  for (const int rank : facts.all())
    if (facts.of[static_cast<std::size_t>(rank)].contains(kFailure)) ranks.push_back(rank);
  const Groups groups = group(ranks, [&](int rank) { return facts.at(rank, kFailure).get<std::string>(); });
  if (!ranks.empty()) out.fail(fmt::format("cannot be checked: {}", describe(facts, groups)), ranks);
  return !ranks.empty();
}

Json as_json(const Verdict& v) {
  return {{"level", name_of(v.level)}, {"probe", v.probe}, {"text", v.text}, {"remedy", v.remedy}, {"nodes", v.nodes}};
}

Verdict verdict_of(const Json& json) {
  Verdict v{Level::fine, json.at("probe"), json.at("text"), json.at("remedy"), json.at("nodes")};
  for (const Level level : {Level::warning, Level::problem})
    if (json.at("level") == name_of(level)) v.level = level;
  return v;
}

/// Judges on rank 0 and broadcasts the verdicts.
std::vector<Verdict> judge(const Probe& probe, const Facts& facts, Context& context) {
  std::vector<Verdict> verdicts;
  Json all = Json::array();
  if (context.session.rank() == 0) {
    Judgement out(probe, facts, verdicts);
    try {
      if (!judge_failures(facts, out)) probe.judge(facts, out);
    } catch (const std::exception& e) {  // the other ranks wait for the broadcast
      out.fail(fmt::format("cannot be judged: {}", e.what()), {},
               "this is a fault of qft check: report it with the output of --json");
    }
    for (const Verdict& v : verdicts) all.push_back(as_json(v));
  }
  verdicts.clear();
  for (const Json& json : comm::broadcast_json(context.session.world(), all)) verdicts.push_back(verdict_of(json));
  return verdicts;
}

}  // namespace

std::string_view name_of(Level level) {
  return level == Level::fine ? "fine" : level == Level::warning ? "warning" : "problem";
}

Report run(comm::Session& session, const Options& options, const std::function<void(const Verdict&)>& tell) {
  Report report;
  Context context{session, options};
  Facts facts{places_of(session), {}, options};
  Gather gathered = nullptr;
  for (const Probe* probe : wanted_probes(options.only)) {
    if (probe->gather != gathered) {
      facts.of = gather_all(*probe, context);
      report.facts[probe->group].push_back({{"probe", probe->name}, {"ranks", facts.of}});
      gathered = probe->gather;
    }
    facts.failed = context.failed;
    for (Verdict& verdict : judge(*probe, facts, context)) {
      if (verdict.level == Level::problem) context.failed.insert(probe->group);
      if (tell) tell(verdict);
      report.verdicts.push_back(std::move(verdict));
    }
  }
  report.refusal = context.refusal;
  return report;
}

bool Report::passed() const {
  return std::none_of(verdicts.begin(), verdicts.end(), [](const Verdict& v) { return v.level == Level::problem; });
}

std::vector<std::string> Report::exclude() const {
  std::vector<std::string> hosts;
  for (const Verdict& v : verdicts)
    for (const std::string& host : v.nodes)
      if (v.level == Level::problem && std::find(hosts.begin(), hosts.end(), host) == hosts.end()) hosts.push_back(host);
  std::sort(hosts.begin(), hosts.end());
  return hosts;
}

std::string to_text(const Verdict& v) {
  const char* mark = v.level == Level::fine ? "ok  " : v.level == Level::warning ? "WARN" : "FAIL";
  return fmt::format("{}  {}: {}\n{}", mark, v.probe, v.text, v.remedy.empty() ? "" : fmt::format("      -> {}\n", v.remedy));
}

std::string summary(const Report& report) {
  const auto count = [&](Level level) {
    return std::count_if(report.verdicts.begin(), report.verdicts.end(), [&](const Verdict& v) { return v.level == level; });
  };
  std::string text = fmt::format("{}: {} fine, {}, {}\n", report.passed() ? "check passed" : "check failed", count(Level::fine),
                                 count_noun(count(Level::warning), "warning"), count_noun(count(Level::problem), "problem"));
  const auto hosts = report.exclude();
  if (hosts.empty()) return text;
  text += "--exclude=";
  for (const std::string& host : hosts) text += (&host == &hosts.front() ? "" : ",") + host;
  return text + "\n";
}

nlohmann::json to_json(const Report& report) {
  Json verdicts = Json::array();
  for (const Verdict& v : report.verdicts) verdicts.push_back(as_json(v));
  return {{"passed", report.passed()}, {"exclude", report.exclude()}, {"verdicts", verdicts}, {"facts", report.facts}};
}

}  // namespace qft::check
