// Runs checks one after another on all ranks and collects their results.
#pragma once

#include "qft/selftest/selftest.h"

#include <functional>
#include <regex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::selftest {

/// The subject of a check and the texts of its failure. Constants beside the checks.
struct Subject {
  std::string_view group, what;
  std::string_view meaning;  ///< effect of a failure on training
  std::string_view advice;   ///< what to do next
};

/// Relative errors against fp64 that rounding explains.
struct Limits {
  at::ScalarType type;
  double elementwise;  ///< some roundings per value: norms, activations, rotations, optimizers
  double product;      ///< sums of products with intermediate rounding: linear layers, attention, the head
  double step;         ///< loss and gradient norm of a training step
  double update;       ///< weight changes in the training steps
};
const Limits& limits_of(at::ScalarType type);
std::string_view name_of(at::ScalarType type);

/// The outcome of one check on this rank.
class Outcome {
 public:
  using Tamper = std::function<void(std::string_view result, at::Tensor& values)>;  ///< see Options
  explicit Outcome(Tamper tamper) : tamper_(std::move(tamper)) {}

  /// The error of `actual` (any device and dtype) is ||actual - expected|| / ||expected||, or if larger an eighth of the worst
  /// element's error relative to the root mean square of all. `limit` 0: the bits must be equal.
  void compare(std::string_view result, const at::Tensor& actual, const at::Tensor& expected, double limit);
  /// The error is |actual - expected| / |expected|.
  void compare(std::string_view result, double actual, double expected, double limit);
  /// Checks a yes or no; `otherwise` is the text for a no.
  void hold(std::string_view result, bool ok, const std::string& otherwise);
  /// Checks an error that the caller has computed.
  void judge(std::string_view result, double error, double limit);
  /// Ends a check that cannot run here. Call alike on all ranks.
  [[noreturn]] static void skip(std::string why);

  void fail(const std::string& text);
  double error() const { return error_; }
  double limit() const { return limit_; }
  const std::string& text() const { return text_; }  ///< empty: passed

 private:
  double tampered(std::string_view result, double value) const;
  void take(std::string_view result, double error, double limit);

  Tamper tamper_;
  double error_ = 0.0, limit_ = 0.0;  ///< of the result with the worst ratio to its limit
  std::string text_;
};

/// Runs the checks and builds the report.
class Runner {
 public:
  /// Collective. Both arguments must outlive the runner.
  Runner(comm::Session& session, const Options& options);

  c10::Device device() const { return options_.device; }
  comm::Session& session() const { return session_; }
  /// True if the device computes in this type.
  bool has(at::ScalarType type) const;
  /// Returns the types to check. Excludes fp64 on the CPU: it is the oracle itself.
  std::span<const at::ScalarType> checked_types() const {
    return std::span(dtypes_).subspan(device().is_cpu() && has(at::kDouble) ? 1 : 0);
  }

  /// Runs `body` on every rank, unless Options::only excludes the check, and reports the outcome. Collective; `body` may be
  /// collective.
  void check(const Subject& subject, std::string setting, const std::function<void(Outcome&)>& body);
  Report finish();

 private:
  bool wanted(const Row& row) const;
  /// Merges the ranks' outcomes into the row.
  void merge_outcomes(Row& row, const Outcome& mine, const std::string& skipped);

  comm::Session& session_;
  Options options_;
  /// for outcomes only, so that they never mix with leftovers of a check that throws
  std::unique_ptr<comm::Communicator> group_;
  std::regex only_;
  std::vector<at::ScalarType> dtypes_;
  Report report_;
  double start_;
};

// The groups of checks, in this order.
using CheckGroup = void(Runner& runner);
CheckGroup check_copies, check_kernels, check_optimizers, check_products, check_attention, check_collectives, check_steps,
    check_decoding;
/// Checks the collectives of one group of ranks, on buffers of the runner's device or the host.
void check_group(Runner& runner, comm::Communicator& comm, c10::Device device, std::string_view name);

}  // namespace qft::selftest
