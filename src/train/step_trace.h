// The trace of chosen steps: what each rank's threads and streams do when, in one file that ui.perfetto.dev and chrome://tracing
// open.
#pragma once

#include "qft/comm/session.h"
#include "qft/config/training_args.h"
#include "qft/core/trace.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <c10/core/Device.h>
#include <nlohmann/json_fwd.hpp>

namespace qft::train {

/// The spans of one rank; times are seconds since the recording began.
struct RankSpans {
  std::string host;
  std::vector<trace::Span> spans;
};

/// Chrome's trace event format: a process a rank, a thread a lane. Work of one lane that overlaps without nesting gets lanes of
/// its own, as viewers expect.
nlohmann::ordered_json trace_json(const std::vector<RankSpans>& ranks, std::int64_t first_step, std::int64_t last_step);

class StepTrace {
 public:
  /// `t.trace` names the file. Throws ConfigError if trace_steps begin behind `total_steps`, or if the file is not a trace of
  /// qft. Collective; `session` must outlive this.
  StepTrace(const config::TrainingArgs& t, std::int64_t total_steps, comm::Session& session, c10::Device device);

  /// Begins the recording if `step` (from 1) is the first step of it that this process runs. Collective.
  void before_step(std::int64_t step);
  /// Writes the file if `step` is the last step to record. Collective.
  void after_step(std::int64_t step);
  /// Writes the recorded steps if the run ends before the last step to record. Collective.
  void finish();

 private:
  void write();

  comm::Session& session_;
  comm::Communicator& comm_;
  c10::Device device_;
  std::filesystem::path file_;
  std::int64_t first_ = 0, last_ = 0;
  std::int64_t recorded_ = 0;  ///< the last recorded step
  double origin_ = 0.0;        ///< steady_seconds() of the moment that is 0 on all ranks
};

}  // namespace qft::train
