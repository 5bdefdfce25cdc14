// Draws the conclusion of a plan: whether the run fits, with which micro-batch, how long it takes, or what would fit.
#pragma once

#include "qft/plan/plan.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace qft::plan {

/// The planned run with changed settings.
struct Variant {
  std::vector<std::string> settings;  ///< "key=value", as on the command line
  int ranks = 1;
  std::int64_t micro_batch = 0;          ///< per_device_train_batch_size, wherever it is set; other settings stay. 0: the run's
  std::int64_t tensor = 0, context = 0;  ///< degrees, in place of all that set them or count data ranks; 0: the run's
};
/// Plans a variant. Throws ConfigError if its settings contradict each other.
using Replan = std::function<Plan(const Variant& variant, const Question& question)>;

/// Why the search for a larger micro-batch ended.
enum class MicroBatchLimit {
  search,        ///< larger ones were not tried
  memory,        ///< larger ones do not fit
  data,          ///< the data has no more rows for them
  global_batch,  ///< global_batch_size has no more samples for a rank
  refused,       ///< the run's other settings forbid larger ones
};

/// A change that makes the run fit.
struct Remedy {
  std::string change;         ///< "quantization_bit=4", "16 ranks"
  std::string strategy_text;  ///< the strategy it then uses: "zero3"
  std::int64_t needed;        ///< bytes per rank
};

/// The run with these numbers of ranks that share matrices and sequences.
struct DegreesRow {
  std::int64_t tensor = 1, context = 1;
  std::string strategy;  ///< the fastest that fits, or the run file's
  bool fits = false;
  std::int64_t needed = 0;  ///< bytes per rank
  StepTime time = {};       ///< its bytes, and its seconds if there is a machine

  double tokens_per_second() const;
};

/// Degrees that the ranks allow and the run's model or settings do not.
struct RefusedDegrees {
  std::int64_t tensor = 1, context = 1;
  std::string reason;  ///< the error
};

/// The conclusion of a plan.
struct Verdict {
  bool known = false;                    ///< the memory of a rank is known
  bool fits = false;                     ///< the strategy that the run takes fits
  std::string strategy_text;             ///< the strategy: "zero3", "zero3 with the optimizer in host memory"
  Row row;                               ///< the row of that strategy, or the one that needs least if nothing fits
  std::int64_t micro_batch = 0;          ///< per_device_train_batch_size of the run
  std::int64_t largest_micro_batch = 0;  ///< the largest that fits with that strategy; 0: not searched, or none
  MicroBatchLimit limit = MicroBatchLimit::search;
  std::string refusal;           ///< the error of a larger micro-batch, if `limit` is `refused`
  std::int64_t total_steps = 0;  ///< 0: unknown
  std::optional<double> step_seconds, run_seconds, tokens_per_second;
  std::vector<Remedy> remedies;  ///< planned changes, if the run does not fit, or only by offloading
  /// The degrees that ranks and model allow, the run's own included; those that fit first, the fastest first; without a machine,
  /// those with the smallest product.
  std::vector<DegreesRow> degrees;
  std::vector<RefusedDegrees> refused_degrees;
  std::optional<DegreesRow> better;  ///< of `degrees`, to use instead of the run's
};

/// Judges `plan`, which was made of `config`, choosing as `qft train` would. Plans variants with `replan`.
Verdict judge(const Plan& plan, const config::RunConfig& config, const Replan& replan);

/// Returns some sentences, one per line.
std::string to_text(const Plan& plan, const Verdict& verdict);
nlohmann::ordered_json to_json(const Verdict& verdict);

}  // namespace qft::plan
