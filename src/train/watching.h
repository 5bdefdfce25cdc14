// What others can watch of a run while it goes on: run.json, which says what the run is, and the trackers. Rank 0 only.
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

/// What run.json says of a run before its first step: model, data, ranks, predicted memory, settings without secrets.
nlohmann::ordered_json describe_run(const Banner& banner, const config::RunConfig& config, engine::Instance& instance,
                                    const engine::TrainingData& data);

/// What the GPUs of this node do; none where no driver tells.
std::vector<track::GpuUse> gpus_here();

/// What the nodes took since the last call, node after node; `here` is null but on each node's first rank. Collective.
std::map<std::string, std::vector<double>> gather_use(track::MachineUse* here, comm::Communicator& comm);

class Watching {
 public:
  /// Writes run.json and starts the trackers. `id` stays the same when the run is resumed; it goes on behind `from_step`.
  Watching(const config::RunConfig& config, const std::string& id, std::int64_t from_step, nlohmann::ordered_json description);
  /// After a failure, unless end() was called.
  ~Watching();
  Watching(const Watching&) = delete;
  Watching& operator=(const Watching&) = delete;

  /// Writes report.html, by a thread of its own.
  void report();
  void end(track::Status status);
  /// Why the run fails: run.json says it from its end on.
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
