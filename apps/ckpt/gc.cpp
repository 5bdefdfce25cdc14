// qft-ckpt gc OUTPUT_DIR: removes unfinished files, and checkpoints beyond a limit.
#include "qft/checkpoint/gc.h"

#include "qft/core/units.h"
#include "qft/io/dir_lock.h"
#include "qft/io/file.h"

#include <iostream>
#include <optional>

#include "command.h"
#include <boost/program_options/value_semantic.hpp>
#include <fmt/format.h>

namespace qft::ckpt_tool {
namespace {

namespace po = boost::program_options;

config::CommandSpec spec() {
  config::CommandSpec spec = make_spec(
      "gc",
      "Cleans up an output_dir: removes unfinished saves and removals and, with --keep N, all checkpoints except the newest N "
      "that verify. Removes checkpoints of abandoned branches first and keeps the run's best one. Does not touch damaged "
      "checkpoints and files of other programs. Refuses a directory that a run is using.",
      "OUTPUT_DIR", 1);
  spec.options.add_options()("keep", po::value<std::int64_t>(), "verified checkpoints to keep; absent: all")(
      "min-age", po::value<std::int64_t>()->default_value(15),
      "minutes without a change after which unfinished files count as abandoned")(
      "dry-run,n", "list the files to remove without removing them");
  return spec;
}

checkpoint::GcOptions options_of(const config::CommandLine& line) {
  checkpoint::GcOptions options;
  if (line.options.count("keep")) options.keep = line.options["keep"].as<std::int64_t>();
  const auto minutes = line.options["min-age"].as<std::int64_t>();
  if (minutes < 0 || minutes > 1'000'000) fail_config("qft-ckpt gc: --min-age {} is not a valid number of minutes", minutes);
  options.least_age = std::chrono::minutes(minutes);
  return options;
}

int run(const config::CommandLine& line) {
  if (line.words.size() != 1) fail_config("qft-ckpt gc: give one output_dir instead of {}", line.words.size());
  const bool dry = line.options.count("dry-run") > 0;
  std::optional<io::DirLock> lock;  // no run may save here during the cleanup
  if (!dry) {
    io::require_directory(line.words[0], "output_dir");
    lock.emplace(line.words[0], io::this_process("qft-ckpt gc"));
  }
  const auto plan = checkpoint::plan_gc(line.words[0], options_of(line));
  std::uint64_t bytes = 0;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const checkpoint::GcEntry& entry : plan) {
    if (entry.remove) bytes += entry.bytes;
    if (line.json)
      list.push_back({{"path", entry.path.string()}, {"remove", entry.remove}, {"reason", entry.reason}, {"bytes", entry.bytes}});
    else
      std::cout << fmt::format("{:<6} {}  ({}; {})\n", entry.remove ? "remove" : "keep", entry.path.string(), entry.reason,
                               format_bytes(static_cast<double>(entry.bytes)));
  }
  std::cout.flush();
  if (!dry) checkpoint::run_gc(io::posix_storage(), plan);
  if (line.json)
    std::cout << nlohmann::ordered_json{{"dry_run", dry}, {"bytes", bytes}, {"entries", list}}.dump(2) << "\n";
  else
    std::cout << fmt::format("{} {}\n", format_bytes(static_cast<double>(bytes)),
                             dry ? "would be freed: nothing was removed (--dry-run)" : "freed");
  return kExitOk;
}

}  // namespace

const Command kGc{"gc", "removes unfinished and old checkpoints from an output_dir", spec, run};

}  // namespace qft::ckpt_tool
