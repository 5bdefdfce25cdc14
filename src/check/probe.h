// A probe: a row of the table, with a function that gathers facts and one that judges them. Private to check.
#pragma once

#include "qft/check/check.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace qft::check {

/// Fractions of an interface's rate that a measurement must reach. Low, because one TCP connection does not fill a fast
/// interface.
inline constexpr double kLinkProblem = 0.2, kLinkWarning = 0.5;
/// Bytes per second that one TCP connection reaches on any fast link.
inline constexpr double kOneStream = 1e9;

using Json = nlohmann::json;

/// The place of a rank.
struct Place {
  std::string host;
  int node = 0, local_rank = 0;
};

/// The input of gatherers, on each rank.
struct Context {
  comm::Session& session;
  const Options& options;
  std::set<std::string> failed = {};  ///< groups with a problem so far, the same on all ranks
  RunForecast forecast = {};          ///< set once the run was previewed
  std::exception_ptr refusal = {};
};

/// The facts of one gatherer, by rank.
struct Facts {
  std::vector<Place> places;
  std::vector<Json> of;
  const Options& options;
  std::set<std::string> failed = {};  ///< groups with a problem in earlier probes

  std::size_t ranks() const { return of.size(); }
  int nodes() const;
  std::vector<int> all() const;
  /// Returns the first rank of each node.
  std::vector<int> leaders() const;
  const Json& at(int rank, const char* key) const { return of.at(static_cast<std::size_t>(rank)).at(key); }
  /// Returns "node01, node02", "all nodes" or, if only some ranks of a node are meant, "rank 3 (node01)".
  std::string where(std::span<const int> ranks) const;
  std::vector<std::string> hosts(std::span<const int> ranks) const;
};

struct Probe;

/// Collects a probe's verdicts.
class Judgement {
 public:
  Judgement(const Probe& probe, const Facts& facts, std::vector<Verdict>& verdicts)
      : probe_(probe), facts_(facts), verdicts_(verdicts) {}

  void fine(std::string text);
  /// `ranks`: where the finding holds; if these are only some of the nodes, they are named as at fault. `remedy`: replaces the
  /// probe's remedy if not empty.
  void warn(std::string text, std::span<const int> ranks = {}, std::string remedy = {});
  void fail(std::string text, std::span<const int> ranks = {}, std::string remedy = {});

  const Probe& probe() const { return probe_; }

 private:
  void add(Level level, std::string text, std::span<const int> ranks, std::string remedy);
  const Probe& probe_;
  const Facts& facts_;
  std::vector<Verdict>& verdicts_;
};

/// Returns this rank's facts as a JSON object. Consecutive rows with the same gatherer share one call. May be collective. An
/// exception is reported as a problem of that rank.
using GatherFunction = Json(Context&);
using Gather = GatherFunction*;
/// Judges facts. Uses only the facts, so tests can make them up.
using JudgeFunction = void(const Facts&, Judgement&);
using Judge = JudgeFunction*;

/// A row of the table.
struct Probe {
  const char* group;
  const char* name;
  Gather gather;
  Judge judge;
  const char* fact;    ///< the judged fact, if a judge serves several rows; else ""
  const char* remedy;  ///< what to do if not fine
};
std::span<const Probe> probes();

/// Ranks grouped by a text, in the order of their lowest rank.
using Groups = std::vector<std::pair<std::string, std::vector<int>>>;
template <class F>
Groups group(std::span<const int> ranks, F&& text_of) {
  Groups groups;
  for (const int rank : ranks) {
    const std::string text = text_of(rank);
    auto at = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == text; });
    if (at == groups.end()) at = groups.insert(groups.end(), {text, {}});
    at->second.push_back(rank);
  }
  return groups;
}
/// Returns "A on node01; B on node02".
std::string describe(const Facts& facts, const Groups& groups);
/// Returns the ranks outside the group that has more than half of the ranks; empty if there is no such group.
std::vector<int> minority(const Groups& groups);

/// Expects the same fact on all ranks. A difference is a problem; for judge_alike, a warning.
JudgeFunction judge_equal, judge_alike;

// The gatherers, one per file, and the judges by file.
GatherFunction gather_path_mtu, gather_software, gather_host, gather_files, gather_outputs, gather_gpus, gather_links,
    gather_clock, gather_pairs, gather_collectives, gather_selftest, gather_run, gather_space;
JudgeFunction judge_path_mtu;
JudgeFunction judge_hosts, judge_device, judge_libraries, judge_variables;
JudgeFunction judge_memory, judge_binding, judge_oversubscription, judge_load, judge_locked_memory, judge_open_files, judge_stack,
    judge_shared_memory, judge_huge_pages;
JudgeFunction judge_files;
JudgeFunction judge_writable, judge_shared;
JudgeFunction judge_driver, judge_gpus, judge_gpu_memory, judge_gpu_errors, judge_gpu_clocks, judge_gpu_peers, judge_gpu_links,
    judge_gpu_lanes, judge_unified_memory;
JudgeFunction judge_interfaces, judge_addresses, judge_link_speed, judge_mtu, judge_nccl_interface, judge_rdma_ports,
    judge_gpu_direct;
JudgeFunction judge_clock;
JudgeFunction judge_route, judge_rdma_use, judge_pairs;
JudgeFunction judge_values, judge_latency, judge_all_reduce;
JudgeFunction judge_selftest;
JudgeFunction judge_layout, judge_run, judge_space;

}  // namespace qft::check
