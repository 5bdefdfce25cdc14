// How a run is laid out on its ranks: what the configuration says, and where it says auto what memory allows.
#pragma once

#include <string>

#include "qft/comm/communicator.h"
#include "qft/config/run_config.h"
#include "qft/parallel/memory_plan.h"

namespace qft::parallel {

struct Decision {
  Strategy strategy;            ///< its row of the table
  Offload offload;
  std::int64_t group = 1;       ///< micro-batches in flight at most
  std::int64_t window = 0;      ///< bytes gathered ahead
  Thrift thrift;
  MemoryPlan memory;            ///< predicted, of one rank
  std::int64_t staged = 0;      ///< copies for checkpoints, in host memory
  std::int64_t available = 0;   ///< bytes that a rank may take, on the rank that has least
  std::string reason;           ///< why, where the strategy was "auto"
};

/// The three settings that would lower the memory of this arrangement most.
std::string memory_advice(const config::RunConfig& config, const Decision& decision, int ranks);

/// Before anything is allocated. Collective over `comm`: alike on every rank. Throws ConfigError with the numbers where
/// not even weights, gradients and optimizer fit.
Decision decide(const config::RunConfig& config, const model::ModelSpec& spec, const optim::Precision& precision,
                comm::Communicator& comm, c10::Device device, bool training, const Batches& batches);

}  // namespace qft::parallel
