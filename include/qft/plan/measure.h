// Measures this machine with the model's own operations: what a description for `qft plan` is made of.
#pragma once

#include "qft/comm/session.h"
#include "qft/plan/machine.h"
#include "qft/plan/memory_plan.h"

#include <memory>
#include <string>
#include <vector>

#include <c10/core/Device.h>
#include <nlohmann/json_fwd.hpp>

namespace qft::plan {

/// One line of a table. Seconds are those of the slowest rank while all ranks measure, a median.
struct Sample {
  std::string what;
  double seconds = 0;
  double operations = 0;  ///< 0: not a product
  double bytes = 0;       ///< 0: not counted
  double predicted = 0;   ///< seconds by the rates; 0: none
};

/// Micro-batches that are measured.
struct MeasureOptions {
  std::int64_t tokens = 512;    ///< of a micro-batch
  std::int64_t sequence = 256;  ///< of each sequence in it
  std::int64_t labels = 256;    ///< in all
};

class Measurement {
 public:
  /// Collective over all ranks of the session, as every call. `recipe`: shapes, LoRA and element types.
  Measurement(comm::Session& session, Recipe recipe, c10::Device device, const MeasureOptions& options);
  ~Measurement();
  Measurement(const Measurement&) = delete;
  Measurement& operator=(const Measurement&) = delete;

  /// The model's products, forward and backward, and LoRA's all together.
  std::vector<Sample> gemm();
  std::vector<Sample> attention();
  /// A layer forward and backward, the head, and a micro-batch of the whole model, with what `machine`'s rates predict.
  std::vector<Sample> step(const Machine& machine);
  /// A description of what runs here: rates, memory, links between nodes and inside one.
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
