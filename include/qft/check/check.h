// `qft check`: finds problems in seconds that would break or slow down a job. The table of probes is in src/check/probe.cpp;
// each probe gathers facts on every rank and judges them on rank 0.
#pragma once

#include "qft/comm/session.h"
#include "qft/device/nvml.h"

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <c10/core/Device.h>
#include <nlohmann/json.hpp>

namespace qft::check {

/// How bad a verdict is.
enum class Level : std::uint8_t { fine, warning, problem };
std::string_view name_of(Level level);

/// A probe's statement about one thing.
struct Verdict {
  Level level = Level::fine;
  std::string probe;               ///< "MTU"
  std::string text;                ///< the finding and its place
  std::string remedy;              ///< the remedy; empty if fine
  std::vector<std::string> nodes;  ///< host names of the nodes at fault; empty if all nodes are, or if unknown
};

/// A path that the job needs, and its key.
struct NeededPath {
  std::string key;
  std::filesystem::path path;
  enum class Use { read, write } use = Use::read;
};

/// A preview of the training run, made without training.
struct RunForecast {
  std::vector<std::string> lines;     ///< a description of the run for the user
  std::int64_t checkpoint_bytes = 0;  ///< size of one checkpoint
  std::int64_t checkpoints = 0;       ///< the most that this run adds to output_dir, including one being written; 0: none
  std::int64_t result_bytes = 0;      ///< size of the resulting model or adapter
};

/// The network rates that a machine description promises per node; 0: unknown.
struct ExpectedLinks {
  std::string machine;  ///< name of the description
  double network_bytes_per_second = 0;
};

/// The settings of a check.
struct Options {
  std::vector<NeededPath> paths;
  c10::Device device = c10::kCPU;
  std::string device_error;  ///< why the ranks found no common device; `device` is then the CPU
  bool use_cpu = false;      ///< the run asks for the CPU: other programs may use this node's GPUs
  device::GpuReport gpus;    ///< this node's GPUs, read before this process had a context on a GPU
  ExpectedLinks expected;
  std::string layout;                ///< how the run file divides the ranks; empty: there is none
  std::function<RunForecast()> run;  ///< previews the run; collective; throws as training would. Empty: no run is checked
  std::string only;                  ///< regular expression on group and name of probes; empty: all probes
  std::size_t largest_message = std::size_t{16} << 20;
  /// Longest duration of a probe. A longer one ends the program on every rank with exit code 1 and names probe and rank.
  double stall_timeout_seconds = 60;
  std::filesystem::path root = "/";  ///< parent of /proc and /sys; tests use another folder
};

/// The result of all probes; the same on all ranks.
struct Report {
  std::vector<Verdict> verdicts;
  nlohmann::json facts;        ///< by gatherer, then by rank
  std::exception_ptr refusal;  ///< the exception of Options::run

  bool passed() const;  ///< true if no verdict is a problem
  /// Returns the host names to leave out of the job: the nodes that problems name.
  std::vector<std::string> exclude() const;
};

/// Runs the probes. Calls `tell` on every rank for each verdict as it is found. Collective over the session's world. Throws
/// ConfigError if `only` is not a regular expression or matches no probe, and Error only if communication itself fails.
Report run(comm::Session& session, const Options& options, const std::function<void(const Verdict&)>& tell = {});

/// Returns "FAIL  MTU: ...", and a line with the remedy if the verdict is not fine.
std::string to_text(const Verdict& verdict);
/// Returns the last lines: counts per level, passed or failed, and the nodes for --exclude.
std::string summary(const Report& report);
nlohmann::json to_json(const Report& report);

/// Returns the probes as a Markdown table: group, name, remedy.
std::string describe_probes();

}  // namespace qft::check
