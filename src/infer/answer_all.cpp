#include "qft/infer/answer_all.h"

#include "qft/comm/exchange.h"
#include "qft/comm/session.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/core/units.h"
#include "qft/device/memory.h"

#include <algorithm>
#include <numeric>

namespace qft::infer {
namespace {

constexpr std::int64_t kPromptTokensPerAnswerToken = 16;

/// Share of a rank's free memory that caches and gathered weights may take.
constexpr double kShareOfMemory = 0.9;

/// A decoder that fits in this rank's memory.
struct DecoderRoom {
  std::int64_t capacity = 1;             ///< tokens per sequence
  std::int64_t wanted = 1, slots = 1;    ///< sequences in flight, if memory allows, and as it allows
  double sequence_bytes = 0, bytes = 0;  ///< of a sequence's keys and values, and left for all sequences
};

/// Throws Error if this rank has no room for the model's weights or one sequence.
DecoderRoom fit_decoder(std::span<const Request> requests, engine::Instance& instance, std::int64_t max_slots) {
  DecoderRoom room;
  for (const Request& r : requests)
    room.capacity = std::max(room.capacity, static_cast<std::int64_t>(r.prompt.size()) + r.max_new_tokens);
  const auto device = instance.transformer().device();
  const int sharers = comm::Session::exists() ? comm::Session::current().sharers_of(device) : 1;
  const double left = kShareOfMemory * static_cast<double>(device::memory_left(device, sharers));
  std::int64_t weights = 0;
  for (const auto& unit : instance.weights().gathered_bytes()) weights += unit.total();
  if (weights > 0 && static_cast<double>(weights) > left)
    fail(
        "generation needs the whole model on each rank: {} in addition to this rank's share, but {} of memory are left; use "
        "fewer ranks per node, a device with more memory, or tensor_parallel, with which ranks share each matrix. The loss "
        "alone (qft eval, predict_with_generate: false) needs only one layer at a time",
        format_bytes(static_cast<double>(weights)), format_bytes(left));
  room.sequence_bytes = static_cast<double>(model::state_bytes(instance.spec(), room.capacity, instance.transformer().dtype()));
  room.bytes = left - static_cast<double>(weights);
  if (room.bytes < room.sequence_bytes)
    fail(
        "the keys and values of one sequence of {} tokens take {}, but {} of memory are left: lower max_new_tokens, or shorten "
        "the longest prompt (qft eval: cutoff_len)",
        room.capacity, format_bytes(room.sequence_bytes), format_bytes(room.bytes));
  room.wanted = std::min(max_slots, std::max<std::int64_t>(1, std::ssize(requests)));
  const double fit = room.bytes / room.sequence_bytes;
  room.slots = fit < static_cast<double>(room.wanted) ? static_cast<std::int64_t>(fit) : room.wanted;
  return room;
}

/// Returns how many sequences are in flight: as many as fit on each of the ranks that share matrices, which compute them
/// together. Collective.
std::size_t agree_on_slots(const DecoderRoom& room, const parallel::Groups& groups) {
  const std::int64_t slots = comm::all_reduce_value(groups.tensor(), room.slots, comm::ReduceOp::min);
  if (slots < room.wanted)
    log::info(
        "{} sequences are generated at a time, not {}: the keys and values of one take up to {}, and a rank has no room for more",
        slots, room.wanted, format_bytes(room.sequence_bytes));
  return static_cast<std::size_t>(slots);
}

}  // namespace

std::int64_t cost_of(std::int64_t prompt_tokens, std::int64_t answer_tokens) {
  return prompt_tokens + kPromptTokensPerAnswerToken * answer_tokens;
}

std::vector<int> assign_by_cost(std::span<const std::int64_t> costs, int ranks) {
  std::vector<std::size_t> order(costs.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return costs[a] > costs[b]; });
  std::vector<std::int64_t> sums(static_cast<std::size_t>(ranks), 0);
  std::vector<int> owner(costs.size(), 0);
  for (const std::size_t i : order) {
    const auto least = std::ranges::min_element(sums);
    owner[i] = static_cast<int>(least - sums.begin());
    *least += costs[i];
  }
  return owner;
}

std::vector<std::size_t> assigned_to(int rank, std::span<const std::int64_t> costs, int ranks) {
  const std::vector<int> owner = assign_by_cost(costs, ranks);
  std::vector<std::size_t> mine;
  for (std::size_t i = 0; i < costs.size(); ++i)
    if (owner[i] == rank) mine.push_back(i);
  std::ranges::stable_sort(mine, [&](std::size_t a, std::size_t b) { return costs[a] > costs[b]; });
  return mine;
}

void warn_about_shortened_answers(std::int64_t shortened, const engine::Instance& instance) {
  const std::int64_t all = comm::all_reduce_value(instance.groups().data(), shortened);
  if (all > 0 && instance.groups().all().rank() == 0)
    log::warn(
        "{} answers have less room than max_new_tokens or max_length asks for: they are cut off at the model's {} positions", all,
        instance.spec().config.max_position_embeddings);
}

void answer_all(engine::Instance& instance, std::span<const Request> requests, const config::RunConfig& config,
                std::span<const std::int32_t> stop_ids, comm::Communicator& comm,
                const std::function<void(std::size_t, const Answer&)>& done) {
  DecoderRoom room;
  comm::agreed(comm, [&] { room = fit_decoder(requests, instance, config.training.per_device_eval_batch_size); });
  Decoder decoder(instance, room.capacity, agree_on_slots(room, instance.groups()));
  comm::agreed(comm, [&] { generate_all(decoder, sampler_options(config), requests, stop_ids, done); });
}

}  // namespace qft::infer
