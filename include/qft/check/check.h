// `qft check`: finds in seconds what would break or slow down a job. A table of probes (src/check/probes.cpp), each of which
// gathers facts on every rank and judges them on rank 0.
#pragma once

#include "qft/comm/session.h"
#include "qft/device/nvml.h"

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <c10/core/Device.h>
#include <nlohmann/json.hpp>

namespace qft::check {

enum class Level : std::uint8_t { fine, warning, problem };
std::string_view name_of(Level level);

/// What a probe says of one thing.
struct Verdict {
  Level level = Level::fine;
  std::string probe;               ///< "MTU"
  std::string text;                ///< what is so, and where
  std::string remedy;              ///< what to do; empty where all is fine
  std::vector<std::string> nodes;  ///< host names of those at fault; empty where all are, or none can be told
};

/// A path that the job needs, and the key it comes from.
struct NeededPath {
  std::string key;
  std::filesystem::path path;
  enum class Use { read, write } use = Use::read;
};

/// What training would do, found without doing it.
struct RunForecast {
  std::vector<std::string> lines;     ///< what would run, a line each
  std::int64_t checkpoint_bytes = 0;  ///< of one checkpoint
  std::int64_t checkpoints = 0;       ///< that this run adds to output_dir at most, the one being written included; 0: none
  std::int64_t result_bytes = 0;      ///< of the model or adapter beside them
};

/// What a node's network is known to reach, from a description of the machine; 0: unknown.
struct ExpectedLinks {
  std::string machine;  ///< who says so
  double network_bytes_per_second = 0;
};

struct Options {
  std::vector<NeededPath> paths;
  c10::Device device = c10::kCPU;
  std::string device_error;  ///< why the ranks found no common device; `device` is the CPU then
  bool use_cpu = false;      ///< the run asks for the CPU: others may use this node's GPUs
  device::GpuReport gpus;    ///< of this node, from before this process had a context on a GPU
  ExpectedLinks expected;
  std::function<RunForecast()> run;  ///< collective; throws what training would refuse. Empty: no run is looked at
  std::string only;                  ///< a regular expression: the probes whose group or name has it; empty: all
  std::size_t largest_message = std::size_t{16} << 20;
  /// A probe that takes longer ends the program on every rank: exit code 1 and a text that names probe and rank.
  double patience_seconds = 60;
  std::filesystem::path root = "/";  ///< where /proc and /sys lie: another folder in tests
};

/// The same on all ranks.
struct Report {
  std::vector<Verdict> verdicts;
  nlohmann::json facts;        ///< by gatherer, then by rank
  std::exception_ptr refusal;  ///< what Options::run threw

  bool passed() const;  ///< no verdict is a problem
  /// Host names to leave out of the job: those that problems name.
  std::vector<std::string> exclude() const;
};

/// Runs the probes; `tell` is called on every rank as each verdict is found. Collective over the session's world. Throws
/// ConfigError where `only` is no regular expression or fits no probe, Error only where communication itself fails.
Report run(comm::Session& session, const Options& options, const std::function<void(const Verdict&)>& tell = {});

/// "FAIL  MTU: ..." and, of what is not fine, a line with the remedy.
std::string to_text(const Verdict& verdict);
/// The last lines: how many of what, passed or not, and the nodes for --exclude.
std::string summary(const Report& report);
nlohmann::json to_json(const Report& report);

/// The probes as a table in Markdown: group, name, remedy.
std::string describe_probes();

}  // namespace qft::check
