// `qft check`: finds in seconds what would break or slow down a job.
#pragma once

#include "qft/comm/session.h"

#include <filesystem>
#include <string>
#include <vector>

#include <c10/core/Device.h>
#include <nlohmann/json.hpp>

namespace qft::job {

/// One thing that was looked at.
struct Finding {
  enum class Level { fine, note, problem } level = Level::fine;
  std::string topic;   ///< "versions", "paths", ...
  std::string text;    ///< what is so
  std::string advice;  ///< what to do; empty where nothing is to be done
};

/// A path that the job needs, and the key it comes from.
struct NeededPath {
  std::string key;
  std::filesystem::path path;
  enum class Use { read, write } use = Use::read;
};

struct PreflightOptions {
  std::vector<NeededPath> paths;
  c10::Device device = c10::kCPU;
  std::size_t largest_message = std::size_t{16} << 20;
  /// A stage that takes longer ends the program on every rank: exit code 1 and a text that names stage and rank.
  double stage_limit_seconds = 60;
};

/// The same findings on all ranks; the times are those of the slowest rank.
struct PreflightReport {
  std::vector<Finding> findings;
  std::string tables;      ///< ranks and bandwidths, as text
  nlohmann::json details;  ///< the same as data
  bool passed() const;     ///< no finding is a problem
};

/// Collective over the session's world. Throws only where communication itself fails.
PreflightReport run_preflight(comm::Session& session, const PreflightOptions& options);

/// Tables and findings; whether it passed is said by the caller, who may have more to look at.
std::string to_text(const PreflightReport& report);
/// One line of it, and one for the advice.
std::string to_text(const Finding& finding);
nlohmann::json to_json(const PreflightReport& report);

}  // namespace qft::job
