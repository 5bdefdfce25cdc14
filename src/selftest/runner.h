// Runs checks one after another on all ranks, and collects what they find.
#pragma once

#include "qft/selftest/selftest.h"

#include <cstdint>
#include <functional>
#include <regex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::selftest {

/// What is checked, and what a failure of it says. Constants beside the checks.
struct Subject {
  std::string_view group, what;
  std::string_view meaning;  ///< of a failure for training
  std::string_view advice;   ///< what to do next
};

/// What rounding explains of a difference from fp64: relative errors.
struct Limits {
  at::ScalarType type;
  double elementwise;  ///< a few roundings of each value: norms, activations, rotations, optimizers
  double product;      ///< sums of products, rounded on the way: linear layers, attention, the head
  double step;         ///< loss and gradient norm of a training step
  double update;       ///< of the weights in the training steps
};
const Limits& limits_of(at::ScalarType type);
std::string_view name_of(at::ScalarType type);

/// One check on this rank.
class Outcome {
 public:
  using Tamper = std::function<void(std::string_view result, at::Tensor& values)>;  ///< see Options
  explicit Outcome(Tamper tamper) : tamper_(std::move(tamper)) {}

  /// The error of `actual` (any device and dtype) is ||actual - expected|| / ||expected||, or an eighth of that of the worst
  /// element, relative to the root mean square of all, where that is more. `limit` 0: the same bits.
  void compare(std::string_view result, const at::Tensor& actual, const at::Tensor& expected, double limit);
  /// |actual - expected| / |expected|.
  void compare(std::string_view result, double actual, double expected, double limit);
  /// A yes or no; `otherwise` is what to say of a no.
  void hold(std::string_view result, bool ok, const std::string& otherwise);
  /// An error in its own terms.
  void judge(std::string_view result, double error, double limit);
  /// The check cannot be made here: ends it. Alike on all ranks.
  [[noreturn]] static void skip(std::string why);

  void fail(const std::string& text);
  double error() const { return error_; }
  double limit() const { return limit_; }
  const std::string& text() const { return text_; }  ///< empty: it passed

 private:
  double tampered(std::string_view result, double value) const;
  void take(std::string_view result, double error, double limit);

  Tamper tamper_;
  double error_ = 0.0, limit_ = 0.0;  ///< of the result that is worst beside its limit
  std::string text_;
};

class Runner {
 public:
  /// Collective. Both must outlive the runner.
  Runner(comm::Session& session, const Options& options);

  c10::Device device() const { return options_.device; }
  comm::Session& session() const { return session_; }
  /// Whether the device computes in this type.
  bool has(at::ScalarType type) const;
  /// Those of its types that operations are checked in: fp64 on the CPU is the oracle itself.
  std::span<const at::ScalarType> judged() const {
    return std::span(dtypes_).subspan(device().is_cpu() && has(at::kDouble) ? 1 : 0);
  }

  /// Runs `body` on every rank, unless Options::only leaves it out, and tells the outcome. Collective, and `body` may be.
  void check(const Subject& subject, std::string setting, const std::function<void(Outcome&)>& body);
  Report finish();

 private:
  bool wanted(const Row& row) const;
  /// The ranks' outcomes into the row.
  void meet(Row& row, const Outcome& mine, const std::string& skipped);

  comm::Session& session_;
  Options options_;
  std::unique_ptr<comm::Communicator> group_;  ///< of the outcomes: never mixed up with what a check that throws leaves under way
  std::regex only_;
  std::vector<at::ScalarType> dtypes_;
  Report report_;
  double start_;
};

// The groups, in this order.
void check_copies(Runner& runner);
void check_kernels(Runner& runner);
void check_optimizers(Runner& runner);
void check_products(Runner& runner);
void check_attention(Runner& runner);
void check_collectives(Runner& runner);
void check_steps(Runner& runner);
void check_decoding(Runner& runner);
/// The collectives of one group of ranks, for buffers on the runner's device or the host.
void check_group(Runner& runner, comm::Communicator& comm, c10::Device device, std::string_view name);

}  // namespace qft::selftest
