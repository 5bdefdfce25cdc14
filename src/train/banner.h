// The lines that open a run, a fact each: model, data, method, precision, strategy, memory, steps.
#pragma once

#include "qft/comm/session.h"
#include "qft/config/run_config.h"
#include "qft/engine/instance.h"

#include <cstdint>
#include <string>
#include <vector>

namespace qft::train {

struct Banner {
  std::string model;
  std::int64_t total_steps = 0, steps_per_epoch = 0, global_batch_size = 0, micro_batch_size = 0, samples = 0, held_out = 0;
  std::int64_t rows = 0;                  ///< into which packing has laid the samples of an epoch; 0: none
  double shared = 0;                      ///< part of the tokens that have no row of their own (share_prompts)
  std::vector<std::string> hosts;         ///< of each rank
  std::vector<std::string> first_sample;  ///< lines that show it
};

/// Logs it. Rank 0 only.
void print(const Banner& banner, const config::RunConfig& config, engine::Instance& instance, const comm::Session& session);

}  // namespace qft::train
