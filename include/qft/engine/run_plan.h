// Resolves a run: run file, model files and machine make one plan::RunPlan.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/comm/mesh.h"
#include "qft/config/run_config.h"
#include "qft/engine/model_source.h"
#include "qft/plan/resolve.h"
#include "qft/plan/run_plan.h"

#include <optional>

#include <c10/core/Device.h>

namespace qft::engine {

/// A rank among those that share matrices, and among those that share sequences.
struct RankShares {
  model::Share tensor, context;
  static RankShares of(const comm::Mesh& mesh);
};

/// Returns the part of the plan that does not depend on the machine: model, element types of training, objective, settings. Reads
/// nothing but the weight files' headers of quantised models. `shares`: of the rank; empty: the most that one of the ranks has,
/// for a plan that holds for all. Throws ConfigError if run file and model do not fit.
plan::RunPlan plan_of(const config::RunConfig& config, const ModelSource& source, std::optional<RankShares> shares = {});

/// Resolves the run on these ranks, and checks before anything is allocated whatever the headers of its files show. `batches`:
/// the largest batches that the loader will produce; if unknown, memory is planned for full rows. Merges adapters into the files
/// of `source`, so resolve a source once. Logs warnings. Collective; throws Error or ConfigError, on all ranks, if something does
/// not fit.
plan::RunPlan resolve_run(const config::RunConfig& config, const ModelSource& source, comm::Communicator& comm,
                          c10::Device device, const plan::Batches& batches = {});

}  // namespace qft::engine
