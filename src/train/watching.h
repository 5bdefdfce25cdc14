// Publishes a run while it is active: run.json, which describes the run, and the trackers. Rank 0 only.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/config/run_config.h"
#include "qft/engine/data_setup.h"
#include "qft/engine/instance.h"
#include "qft/track/machine_use.h"
#include "qft/track/tracking.h"
#include "qft/watch/run_view.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "banner.h"
#include <nlohmann/json.hpp>

namespace qft::train {

/// Returns the part of run.json that is known before the first step: model, data, ranks, predicted memory, settings without
/// secrets.
nlohmann::ordered_json describe_run(const Banner& banner, const config::RunConfig& config, engine::Instance& instance,
                                    const engine::TrainingData& data);

/// Returns the use of this node's GPUs; empty if no driver reports it.
std::vector<track::GpuUse> gpus_here();

/// Returns the nodes' resource use since the last call, in node order. `here`: set on each node's first rank, null elsewhere.
/// Collective.
std::map<std::string, std::vector<double>> gather_use(track::MachineMonitor* here, comm::Communicator& comm);

/// Writes run.json and report.html, and feeds the trackers.
class Watching {
 public:
  /// Writes run.json and starts the trackers. A resumed run keeps its `id` and continues after `from_step`.
  Watching(const config::RunConfig& config, const std::string& id, std::int64_t from_step, nlohmann::ordered_json description);
  /// Ends the trackers as failed, unless end() was called.
  ~Watching();
  Watching(const Watching&) = delete;
  Watching& operator=(const Watching&) = delete;

  /// Writes report.html in a separate thread.
  void report();
  void end(track::Status status);
  /// Records the reason of a failure; end() writes it to run.json.
  void note_error(std::string_view why);

 private:
  void write(std::string_view status);

  std::filesystem::path dir_;
  nlohmann::ordered_json description_;
  std::unique_ptr<track::Tracking> tracking_;
  watch::RunReader reader_;
  std::thread reporter_;
};

}  // namespace qft::train
