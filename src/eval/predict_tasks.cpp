#include "predict_tasks.h"

#include "qft/comm/exchange.h"
#include "qft/comm/session.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/core/units.h"
#include "qft/device/memory.h"
#include "qft/eval/predict.h"
#include "qft/infer/generator.h"

#include <algorithm>
#include <numeric>

namespace qft::eval {
namespace {

/// A prompt is read at once, an answer token by token: a token of it costs about as much as so many of the prompt.
constexpr std::int64_t kPromptTokensPerStep = 16;

/// Share of a rank's memory left that caches and gathered weights may take.
constexpr double kShareOfMemory = 0.9;

std::string name_of(const pack::PackReader& pack, std::int64_t item) {
  const encode::EncodedItem origin = pack.item(item);
  const auto& sources = pack.attributes().sources;
  const auto dataset = static_cast<std::size_t>(origin.dataset);
  return fmt::format("'{}', item {} (record {} of '{}')", pack.path().string(), item, origin.source_index,
                     dataset < sources.size() ? sources[dataset].name : "?");
}

PredictTask read_task(const pack::PackReader& pack, std::int64_t item, const config::RunConfig& config,
                      const model::ModelConfig& model, pack::FlatItem& flat) {
  pack.read(item, flat);
  const encode::Span label = flat.spans.back();
  if (label.begin == 0)
    fail_config(
        "{} has no prompt: its first token is a label already; predict_with_generate needs a set packed without "
        "train_on_prompt, for stage sft",
        name_of(pack, item));
  PredictTask task;
  task.item = item;
  task.prompt.assign(flat.ids.begin(), flat.ids.begin() + label.begin);
  task.label.assign(flat.ids.begin() + label.begin, flat.ids.begin() + label.end);
  if (label.begin >= model.max_position_embeddings)
    fail_config(
        "{}: its prompt has {} tokens, but the model has {} positions (max_position_embeddings, with its rope scaling): "
        "lower cutoff_len (now {}) below that, or leave the record out",
        name_of(pack, item), label.begin, model.max_position_embeddings, config.data.cutoff_len);
  const auto limit = infer::answer_limit(config.generate, model.max_position_embeddings, label.begin);
  task.max_new_tokens = limit.tokens;
  task.shortened = limit.shortened;
  return task;
}

}  // namespace

std::vector<int> deal(std::span<const std::int64_t> costs, int ranks) {
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

std::vector<PredictTask> tasks_of(const pack::PackReader& pack, const loader::ItemSubset& items, const config::RunConfig& config,
                                  const model::ModelConfig& model, int rank, int ranks) {
  const auto tokens = pack.item_tokens(), labels = pack.item_labels();
  const std::size_t count = items ? items->size() : static_cast<std::size_t>(pack.num_items());
  const auto item_at = [&](std::size_t i) { return items ? (*items)[i] : static_cast<std::int64_t>(i); };
  std::vector<std::int64_t> costs;
  for (std::size_t i = 0; i < count; ++i) {
    const auto item = static_cast<std::size_t>(item_at(i));
    costs.push_back(kPromptTokensPerStep * labels[item] + tokens[item]);
  }
  const std::vector<int> owner = deal(costs, ranks);
  std::vector<PredictTask> tasks;
  pack::FlatItem flat;
  for (std::size_t i = 0; i < count; ++i) {
    if (owner[i] != rank) continue;
    tasks.push_back(read_task(pack, item_at(i), config, model, flat));
    tasks.back().order = static_cast<std::int64_t>(i);
  }
  std::ranges::stable_sort(tasks, [&](const PredictTask& a, const PredictTask& b) {
    return costs[static_cast<std::size_t>(a.order)] > costs[static_cast<std::size_t>(b.order)];
  });
  return tasks;
}

void warn_of_short_answers(const std::vector<PredictTask>& tasks, const model::ModelConfig& model, comm::Communicator& comm) {
  const auto mine = static_cast<std::int64_t>(std::ranges::count_if(tasks, &PredictTask::shortened));
  const std::int64_t all = comm::all_reduce_value(comm, mine);
  if (all > 0 && comm.rank() == 0)
    log::warn(
        "{} answers have less room than max_new_tokens or max_length asks for: they are cut off at the model's {} positions", all,
        model.max_position_embeddings);
}

DecoderRoom room_for(const std::vector<PredictTask>& tasks, engine::Instance& instance, const config::RunConfig& config,
                     comm::Communicator& comm) {
  DecoderRoom room;
  for (const PredictTask& t : tasks)
    room.capacity = std::max(room.capacity, static_cast<std::int64_t>(t.prompt.size()) + t.max_new_tokens);
  comm::agreed(comm, [&] {
    const auto device = instance.transformer().device();
    const int sharers = comm::Session::exists() ? comm::Session::current().sharers_of(device) : 1;
    const double left = kShareOfMemory * static_cast<double>(device::memory_left(device, sharers));
    std::int64_t weights = 0;
    for (const auto& unit : instance.weights().gathered_bytes()) weights += unit.total();
    if (weights > 0 && static_cast<double>(weights) > left)
      fail(
          "generation needs the whole model on each rank, {} more than it holds, but {} of memory are left: take fewer ranks a "
          "node or a device with more memory; the loss alone (predict_with_generate: false) needs a layer at a time",
          format_bytes(static_cast<double>(weights)), format_bytes(left));
    const auto cache = static_cast<double>(model::state_bytes(instance.spec(), room.capacity, instance.transformer().dtype()));
    const double fit = (left - static_cast<double>(weights)) / cache;
    if (fit < 1.0)
      fail(
          "the keys and values of one sequence of {} tokens take {}, but {} of memory are left: lower max_new_tokens or "
          "cutoff_len",
          room.capacity, format_bytes(cache), format_bytes(left - static_cast<double>(weights)));
    const auto asked = std::min(static_cast<double>(config.training.per_device_eval_batch_size),
                                std::max(1.0, static_cast<double>(tasks.size())));
    room.slots = static_cast<std::size_t>(std::min(asked, fit));
    if (fit < asked)
      log::info("{} sequences are generated at a time, not {}: the keys and values of each may take {}, {} are left", room.slots,
                asked, format_bytes(cache), format_bytes(left));
  });
  return room;
}

}  // namespace qft::eval
