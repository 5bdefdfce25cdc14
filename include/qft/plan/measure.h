// Measures this machine with the model's own operations, to make a description for `qft plan`.
#pragma once

#include "qft/comm/session.h"
#include "qft/plan/machine.h"
#include "qft/plan/run_plan.h"

#include <memory>
#include <string>
#include <vector>

#include <c10/core/Device.h>
#include <nlohmann/json_fwd.hpp>

namespace qft::plan {

/// One line of a table. Seconds are a median on the slowest rank, while all ranks measure.
struct Sample {
  std::string what;
  double seconds = 0;
  double operations = 0;  ///< 0: not a product
  double bytes = 0;       ///< 0: not counted
  double predicted = 0;   ///< seconds predicted from the rates; 0: none
};

/// The shape of the measured micro-batch.
struct MeasureOptions {
  std::int64_t tokens = 512;    ///< tokens of the micro-batch
  std::int64_t sequence = 256;  ///< tokens of each sequence
  std::int64_t labels = 256;    ///< labels of the micro-batch
};

/// Measurements on all ranks of a session.
class Measurement {
 public:
  /// All calls are collective over the session's ranks. `run`: shapes, LoRA and element types.
  Measurement(comm::Session& session, const RunPlan& run, c10::Device device, const MeasureOptions& options);
  ~Measurement();
  Measurement(const Measurement&) = delete;
  Measurement& operator=(const Measurement&) = delete;

  /// Measures the model's products, forward and backward, and all of LoRA's together.
  std::vector<Sample> gemm();
  /// Measures attention, forward and backward.
  std::vector<Sample> attention();
  /// Measures a layer forward and backward, the head, and a micro-batch of the whole model, with predictions from `machine`'s
  /// rates.
  std::vector<Sample> step(const Machine& machine);
  /// Measures a description of this machine: rates, memory, links between nodes and inside a node.
  Machine machine();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Columns: what, ms, TFLOPS or GB/s, predicted ms.
std::string to_text(const std::vector<Sample>& samples);
/// [{"what", "seconds", "operations", "bytes", "predicted_seconds"}, ...]
nlohmann::json to_json(const std::vector<Sample>& samples);

}  // namespace qft::plan
