// `qft selftest`: checks that this machine's devices, libraries and network compute correctly, compared with the CPU in fp64.
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

/// The result of a check.
enum class Verdict : std::uint8_t { ok, skipped, failed };
std::string_view name_of(Verdict verdict);

/// A rank on which a check failed.
struct RankFailure {
  int rank = 0;
  std::string host, text;
};

/// One check; the same on all ranks.
struct Row {
  std::string group;    ///< "kernels"
  std::string what;     ///< "rms_norm backward"
  std::string setting;  ///< "bf16, 7 x 97"
  Verdict verdict = Verdict::ok;
  double error = 0.0, limit = 0.0;    ///< the worst of any rank; both 0 if the check is a yes or no
  std::string why;                    ///< reason for skipping
  std::vector<RankFailure> failures;  ///< of a failed check, at most eight ranks
  std::string meaning, advice;        ///< of a failed check: its effect on training, and what to do next

  std::string name() const { return group + "/" + what + "/" + setting; }
};

/// The settings of a self-test.
struct Options {
  c10::Device device = c10::kCPU;
  std::string only = {};                        ///< regular expression on name() of checks; empty: all checks
  std::function<void(const Row&)> on_row = {};  ///< called on every rank after each check
  /// For tests: receives each result of a check before it is judged, in fp64 on the CPU, and may change it. A yes or no is 1 or
  /// 0.
  std::function<void(const Row& check, std::string_view result, at::Tensor& values)> tamper = {};
};

/// The results of all checks.
struct Report {
  std::vector<Row> rows;
  int ranks = 1, nodes = 1;
  std::string device;  ///< "cpu (AMD EPYC ...)"
  double seconds = 0.0;

  std::int64_t count(Verdict verdict) const;
  bool passed() const { return count(Verdict::failed) == 0; }
  /// Returns "selftest passed: 143 checks on 2 ranks, cpu (AMD EPYC ...), 38 s".
  std::string summary() const;
};

/// Runs the checks. Continues if a check fails or throws. Collective over the session's world. Throws ConfigError if `only` is
/// not a regular expression or matches no check, and Error if communication itself fails.
Report run(comm::Session& session, const Options& options);

/// Returns the table's head, and a table row; for a failed check with the failure on each rank, its effect on training and what
/// to do.
std::string header();
std::string to_text(const Row& row);
nlohmann::json to_json(const Report& report);

/// A value for Options::only: one case of each kind of computation, in the types of training.
inline constexpr std::string_view kShortForm =
    "^kernels/.*/(fp32|bf16), 7 x 97|^products/linear with LoRA/(fp32|bf16), q, k, v of odd sizes|^attention/.*/(fp32|bf16), "
    ".*heads of 64$|^steps/(ddp|zero3)/(full|LoRA), (fp32|bf16), plain";

}  // namespace qft::selftest
