// What a rank has to answer, and how many answers it can work on at a time.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/config/run_config.h"
#include "qft/engine/instance.h"
#include "qft/loader/schedule.h"
#include "qft/model/config.h"
#include "qft/pack/reader.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace qft::eval {

struct PredictTask {
  std::int64_t order = 0;  ///< among all items of the evaluation set
  std::int64_t item = 0;   ///< in the pack
  std::vector<std::int32_t> prompt, label;
  std::int64_t max_new_tokens = 0;
  bool shortened = false;  ///< by the model's positions
};

/// This rank's part of the items, the longest first, read from the pack. Not collective.
std::vector<PredictTask> tasks_of(const pack::PackReader& pack, const loader::ItemSubset& items, const config::RunConfig& config,
                                  const model::ModelConfig& model, int rank, int ranks);

/// Says on rank 0 how many answers have less room than was asked for. Collective.
void warn_of_short_answers(const std::vector<PredictTask>& tasks, const model::ModelConfig& model, comm::Communicator& comm);

/// The decoder that fits: tokens of a sequence, and sequences in flight.
struct DecoderRoom {
  std::int64_t capacity = 1;
  std::size_t slots = 1;
};
/// Throws the same Error on all ranks where a rank has no room for the model's weights or one sequence. Collective.
DecoderRoom room_for(const std::vector<PredictTask>& tasks, engine::Instance& instance, const config::RunConfig& config,
                     comm::Communicator& comm);

}  // namespace qft::eval
