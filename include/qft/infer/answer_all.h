// Answers all ranks' prompts: distributes them by cost; each rank answers as many sequences at a time as fit in its memory.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/config/run_config.h"
#include "qft/engine/instance.h"
#include "qft/infer/generator.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace qft::infer {

/// Returns the cost of an answer in prompt tokens: a prompt is read at once, an answer token by token.
std::int64_t cost_of(std::int64_t prompt_tokens, std::int64_t answer_tokens);

/// Returns the rank for each item such that the ranks' total costs differ little: assigns items by decreasing cost, each to the
/// rank with the lowest total.
std::vector<int> assign_by_cost(std::span<const std::int64_t> costs, int ranks);
/// Returns the items that assign_by_cost() assigns to `rank`, the most expensive first.
std::vector<std::size_t> assigned_to(int rank, std::span<const std::int64_t> costs, int ranks);

/// Warns on rank 0 if answers on any rank have less room than requested. `shortened`: how many of this rank's answers are cut off
/// at the model's positions. Collective.
void warn_about_shortened_answers(std::int64_t shortened, const engine::Instance& instance);

/// Answers this rank's requests with the sampling keys of `config`. At most per_device_eval_batch_size sequences are in flight,
/// fewer if their keys and values do not fit in memory (logged). Ranks that share matrices have the same requests, and the same
/// number in flight. `done` receives a request's index and its answer, in the order in which answers finish; an exception from
/// `done` on any rank is thrown on all. Collective: a rank may have no requests. Throws Error on all ranks if a rank has no room
/// for the model's weights or one sequence.
void answer_all(engine::Instance& instance, std::span<const Request> requests, const config::RunConfig& config,
                std::span<const std::int32_t> stop_ids, comm::Communicator& comm,
                const std::function<void(std::size_t, const Answer&)>& done);

}  // namespace qft::infer
