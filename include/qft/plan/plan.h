// What a run will cost under each strategy and order, before it is queued.
#pragma once

#include "qft/config/run_config.h"
#include "qft/model/spec.h"
#include "qft/plan/machine.h"
#include "qft/plan/memory_plan.h"
#include "qft/plan/simulation.h"
#include "qft/plan/workload.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace qft::plan {

/// A strategy with an order of its micro-batches, and what a step of it costs.
struct Row {
  parallel::Strategy strategy;
  std::int64_t group = 1;              ///< micro-batches that pass a block under one gather
  std::int64_t max_micro_batches = 1;  ///< micro-batches of a rank in a step
  int shard_ranks = 1, replicas = 1;
  MemoryPolicy policy;
  bool asked = false;        ///< the row that the run file asks for
  MemoryPlan memory;         ///< of one rank
  std::int64_t staged = 0;   ///< copies for checkpoints, where host memory is what a rank computes in
  std::int64_t process = 0;  ///< what the process needs besides, compiled kernels included
  std::int64_t kernels = 0;  ///< of that the compiled kernels
  std::int64_t needed = 0;   ///< the total
  bool fits = true;          ///< into nine tenths of what a rank has; true where the machine is not known
  /// Tokens of the longest sequences of which a micro-batch of Plan::sequences fits; 0: none, or not known. Where the run's own
  /// micro-batches do not fit, it is less than theirs.
  std::int64_t longest = 0;
  StepTime time;  ///< without a machine description only its bytes are meaningful
};

/// The memory of a rank's process before it loads a model.
struct Process {
  bool on_cpu = false;
  bool unified = false;         ///< it computes on a device whose memory is the host's
  std::int64_t bytes = 0;       ///< taken before it holds any of the model
  bool kernels = true;          ///< its device's back end has kernels of ours
  bool torch_attention = true;  ///< LibTorch's own attention kernels run there
};
/// This machine's, for a plan without a machine description: on the CPU where there is no GPU here, and neither QFT_DEVICE nor
/// the run file asks for what only a GPU has. Measures this process.
Process process_here(const config::RunConfig& config);

/// What `qft plan` prints.
struct Plan {
  Recipe recipe;
  int ranks = 1;
  std::optional<Machine> machine;
  Process process;
  std::int64_t available = 0;  ///< bytes of a rank, max_memory at most; 0: unknown
  Workload workload;
  std::int64_t sequences = 1;  ///< of a micro-batch, as the run file asks
  std::vector<Row> rows;
  std::vector<std::string> notes;  ///< what the run file asks for and has no effect
};

/// What a plan is asked.
struct Question {
  std::string_view only = {};  ///< the strategy; empty: all
  bool costs = true;           ///< times and longest sequences too, not only memory
};

/// A row for each strategy, at g = 1, at what breadth_first_micro_batches says, and at the largest g that fits. `config` is a
/// run file's, and `recipe` what it trains. `here`: what a rank is where there is no machine. Throws ConfigError
/// where file and ranks do not go together.
Plan make_plan(const config::RunConfig& config, Recipe recipe, int ranks, const std::optional<Machine>& machine,
               Workload workload, const Process& here = {}, const Question& question = {});

/// Tables for people: memory, what fits, traffic and time, and what of the machine is measured and what assumed. At most 120
/// columns wide.
std::string to_text(const Plan& plan);
/// {"machine": ..., "rows": [{"strategy", "g", "memory": {...}, "bytes": {...}, "seconds": {...}, "fits"}, ...]}; bytes and
/// seconds.
nlohmann::ordered_json to_json(const Plan& plan);

}  // namespace qft::plan
