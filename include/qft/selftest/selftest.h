// `qft selftest`: whether this machine's devices, libraries and network compute what they should, judged by the CPU in fp64.
#pragma once

#include "qft/comm/session.h"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <nlohmann/json_fwd.hpp>

namespace qft::selftest {

enum class Verdict : std::uint8_t { ok, skipped, failed };
std::string_view name_of(Verdict verdict);

/// A rank on which a check failed.
struct RankFailure {
  int rank = 0;
  std::string host, text;
};

/// One check, alike on all ranks.
struct Row {
  std::string group;    ///< "kernels"
  std::string what;     ///< "rms_norm backward"
  std::string setting;  ///< "bf16, 7 x 97"
  Verdict verdict = Verdict::ok;
  double error = 0.0, limit = 0.0;    ///< those that are worst on any rank; both 0 where all that is asked is yes or no
  std::string why;                    ///< it was skipped
  std::vector<RankFailure> failures;  ///< of a failed one, at most eight ranks
  std::string meaning, advice;        ///< of a failed one: what it means for training, and what to do next

  std::string name() const { return group + "/" + what + "/" + setting; }
};

struct Options {
  c10::Device device = c10::kCPU;
  std::string only = {};                        ///< a regular expression: the checks whose name() has it; empty: all
  std::function<void(const Row&)> on_row = {};  ///< called on every rank as each check is done
  /// For tests: gets each result of a check before it is judged, in fp64 on the CPU, and may change it. A yes or no is a 1 or 0.
  std::function<void(const Row& check, std::string_view result, at::Tensor& values)> tamper = {};
};

struct Report {
  std::vector<Row> rows;
  int ranks = 1, nodes = 1;
  std::string device;  ///< "cpu (AMD EPYC ...)"
  double seconds = 0.0;

  std::int64_t count(Verdict verdict) const;
  bool passed() const { return count(Verdict::failed) == 0; }
  /// "selftest passed: 143 checks on 2 ranks, cpu (AMD EPYC ...), 38 s"
  std::string summary() const;
};

/// Runs the checks. A check that fails, or throws, does not end it. Collective over the session's world. Throws ConfigError where
/// `only` is no regular expression or fits no check, and Error where communication itself fails.
Report run(comm::Session& session, const Options& options);

/// The table's head, and a line of it; of a failed check also what failed on which rank, what it means and what to do.
std::string header();
std::string to_text(const Row& row);
nlohmann::json to_json(const Report& report);

}  // namespace qft::selftest
