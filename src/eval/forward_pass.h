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

/// The inputs of none or one micro-batch. Called once a round on every rank.
using MakeInputs = std::function<std::vector<model::MicroInput>(std::span<const loader::MicroBatch> batches)>;
/// Gets what the head gave of this rank's micro-batch of a round.
using Observe = std::function<void(const model::MicroInput& in, const parallel::Logprobs& values, std::int64_t round)>;

/// Every round of `loader` from its start. `values`: as in evaluate(), or null. `progress` gets the rounds done. Collective.
void forward_pass(engine::Instance& instance, loader::EvalLoader& loader, const MakeInputs& inputs, const Observe& observe,
                  const HeadValues& values, const std::function<void(std::int64_t)>& progress);

}  // namespace qft::eval
