// The first lines that a run logs, one fact per line: model, data, method, precision, strategy, memory, steps.
#pragma once

#include "qft/comm/session.h"
#include "qft/config/run_config.h"
#include "qft/engine/instance.h"

#include <cstdint>
#include <string>
#include <vector>

namespace qft::train {

/// The facts that are not in the configuration or the instance.
struct Banner {
  std::string model;
  std::int64_t total_steps = 0, steps_per_epoch = 0, global_batch_size = 0, micro_batch_size = 0, samples = 0, held_out = 0;
  std::int64_t rows = 0;                  ///< packed rows of an epoch; 0: no packing
  std::string template_name;              ///< of the training pack; empty: none
  double shared = 0;                      ///< fraction of the tokens without their own row (share_prompts)
  std::vector<std::string> hosts;         ///< one per rank
  std::vector<std::string> first_sample;  ///< printable lines of the first sample
};

/// Logs the banner. Rank 0 only.
void print(const Banner& banner, const config::RunConfig& config, engine::Instance& instance, const comm::Session& session);

}  // namespace qft::train
