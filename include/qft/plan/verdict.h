// What a plan comes to: whether the run fits, with which micro-batch, how long it takes, and else what would fit.
#pragma once

#include "qft/plan/plan.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace qft::plan {

/// The planned run with changes.
struct Variant {
  std::vector<std::string> settings;  ///< "key=value", as on the command line
  int ranks = 1;
  std::int64_t micro_batch = 0;  ///< per_device_train_batch_size, whatever file it stands in; all else stays. 0: the run's
};
/// Its plan. Throws ConfigError if the changes do not go together.
using Replan = std::function<Plan(const Variant& variant, const Question& question)>;

/// Why no larger micro-batch is named.
enum class MicroBatchLimit {
  search,        ///< larger ones were not tried
  memory,        ///< they do not fit
  data,          ///< the data has no more rows for them
  global_batch,  ///< global_batch_size has no more samples for a rank
  refused,       ///< they do not go with the run's other settings
};

/// A change with which the run fits.
struct Remedy {
  std::string change;   ///< "quantization_bit=4", "16 ranks"
  std::string way;      ///< how it then runs: "zero3"
  std::int64_t needed;  ///< bytes of a rank
};

struct Verdict {
  bool known = false;                    ///< what a rank has is known
  bool fits = false;                     ///< the way that the run takes
  std::string way;                       ///< "zero3", "zero3 with the optimizer in host memory"
  Row row;                               ///< of that way, or of what needs least if nothing fits
  std::int64_t micro_batch = 0;          ///< per_device_train_batch_size of the run
  std::int64_t largest_micro_batch = 0;  ///< the largest that fits that way; 0: not asked, or none
  MicroBatchLimit limit = MicroBatchLimit::search;
  std::string refusal;           ///< of a larger one, if that is the limit
  std::int64_t total_steps = 0;  ///< 0: not known
  std::optional<double> step_seconds, run_seconds, tokens_per_second;
  std::vector<Remedy> remedies;  ///< if it does not fit, or only by offloading: each was planned
};

/// Judges `plan`, that of `config`, as `qft train` would choose; plans variants with `replan`.
Verdict judge(const Plan& plan, const config::RunConfig& config, const Replan& replan);

/// Some sentences, a line each.
std::string to_text(const Plan& plan, const Verdict& verdict);
nlohmann::ordered_json to_json(const Verdict& verdict);

}  // namespace qft::plan
