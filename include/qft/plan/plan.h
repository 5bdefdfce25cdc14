// Predicts what a run costs under each strategy and micro-batch order, before it is queued.
#pragma once

#include "qft/config/run_config.h"
#include "qft/plan/machine.h"
#include "qft/plan/run_plan.h"
#include "qft/plan/simulation.h"
#include "qft/plan/workload.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace qft::plan {

/// A strategy with an order of its micro-batches, and the cost of a step.
struct Row {
  RunPlan run;               ///< `fits` is true if the machine is unknown
  bool requested = false;    ///< the run file asks for this row
  std::int64_t staged = 0;   ///< copies for checkpoints, if ranks compute in host memory
  std::int64_t process = 0;  ///< memory of the process besides the model, compiled kernels included
  std::int64_t needed = 0;   ///< the total
  /// Tokens of the longest sequences with which a micro-batch of Plan::sequences fits; 0: none, or unknown. Below the run's own
  /// length if the run's micro-batches do not fit.
  std::int64_t longest = 0;
  StepTime time = {};  ///< without a machine description only the bytes are meaningful

  const parallel::Strategy& strategy() const { return run.sharding.strategy; }
  std::int64_t group() const { return run.schedule.group; }
  const MemoryPlan& memory() const { return run.footprint.memory; }
};

/// The memory of a rank's process before it loads a model.
struct Process {
  bool on_cpu = false;
  bool unified = false;         ///< computes on a device that uses host memory
  std::int64_t bytes = 0;       ///< memory before it loads the model
  bool kernels = true;          ///< the device's back end has kernels of ours
  bool torch_attention = true;  ///< LibTorch's attention kernels run there
};
/// Returns this machine's process, for a plan without a machine description. It computes on the CPU if there is no GPU here and
/// neither QFT_DEVICE nor the run file asks for GPU features. Measures this process.
Process process_here(const config::RunConfig& config);

/// The content of `qft plan`'s output.
struct Plan {
  RunPlan run;  ///< the model, without work and execution
  int ranks = 1;
  std::optional<Machine> machine;
  Process process;
  std::int64_t available = 0;  ///< bytes of a rank, at most max_memory; 0: unknown
  Workload workload;
  std::int64_t sequences = 1;  ///< sequences of a micro-batch, as the run file asks
  std::vector<Row> rows;
  std::vector<std::string> notes;  ///< settings of the run file without effect
};

/// Which rows and numbers a plan should have.
struct Question {
  std::string_view only = {};  ///< plan only this strategy; empty: all
  bool times = true;           ///< simulate the steps
  bool longest = true;         ///< find the longest sequences that fit
};

/// Plans a row for each strategy: with g = 1, with breadth_first_micro_batches, and with the largest g that fits. `config`: the
/// run file's; `run`: its model and settings; `here`: the process of a rank if there is no machine. Throws ConfigError if the run
/// file does not suit the number of ranks.
Plan make_plan(const config::RunConfig& config, RunPlan run, int ranks, const std::optional<Machine>& machine, Workload workload,
               const Process& here = {}, const Question& question = {});

/// Formats the plan as tables: memory, what fits, traffic and time, and which numbers of the machine are measured or assumed. At
/// most 120 columns wide.
std::string to_text(const Plan& plan);
/// Returns {"machine": ..., "rows": [{"strategy", "g", "memory": {...}, "bytes": {...}, "seconds": {...}, "fits"}, ...]} in bytes
/// and seconds.
nlohmann::ordered_json to_json(const Plan& plan);

}  // namespace qft::plan
