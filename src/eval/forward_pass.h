// One pass of the model over an evaluation set.
#pragma once

#include "qft/engine/instance.h"
#include "qft/eval/perplexity.h"
#include "qft/loader/loader.h"

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace qft::eval {

/// Builds the inputs of zero or one micro-batch. Called once per round on every rank.
using MakeInputs = std::function<std::vector<model::MicroInput>(std::span<const loader::MicroBatch> batches, std::int64_t round)>;

/// Observers of a pass; each may be null.
struct PassObservers {
  const parallel::Objective* objective = nullptr;  ///< may read rows of the logits
  /// Receives the head's output for this rank's micro-batch of a round.
  std::function<void(const model::MicroInput& in, const parallel::Logprobs& values, std::int64_t round)> observe = {};
  HeadValues values = {};
  std::function<void(std::int64_t rounds)> progress = {};
};

/// Runs every round of `loader` from its start. Collective.
void forward_pass(engine::Instance& instance, loader::EvalLoader& loader, const MakeInputs& inputs,
                  const PassObservers& observers);

}  // namespace qft::eval
