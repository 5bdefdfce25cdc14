#include "qft/eval/predict.h"

#include "qft/comm/exchange.h"
#include "qft/core/error.h"
#include "qft/core/json.h"
#include "qft/core/log.h"
#include "qft/core/progress.h"
#include "qft/device/memory.h"
#include "qft/encode/chat_template.h"
#include "qft/infer/answer_all.h"
#include "qft/infer/generator.h"
#include "qft/model/config.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "rounded.h"
#include <nlohmann/json.hpp>

namespace qft::eval {
namespace {

struct PredictTask {
  std::int64_t order = 0;  ///< position among all items of the evaluation set
  std::int64_t item = 0;   ///< in the pack
  std::vector<std::int32_t> prompt, label;
  std::int64_t max_new_tokens = 0;
  bool shortened = false;  ///< the model's positions limit max_new_tokens
};

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
        "{} has no prompt: its first token is already a label; predict_with_generate needs a set packed without "
        "train_on_prompt, for stage sft",
        name_of(pack, item));
  PredictTask task;
  task.item = item;
  task.prompt.assign(flat.ids.begin(), flat.ids.begin() + label.begin);
  task.label.assign(flat.ids.begin() + label.begin, flat.ids.begin() + label.end);
  if (label.begin >= model.max_position_embeddings)
    fail_config(
        "{}: the prompt has {} tokens, but the model has {} positions (max_position_embeddings, with its rope scaling): "
        "lower cutoff_len (now {}) below that, or remove the record",
        name_of(pack, item), label.begin, model.max_position_embeddings, config.data.cutoff_len);
  const auto limit = infer::answer_limit(config.generate, model.max_position_embeddings, label.begin);
  task.max_new_tokens = limit.tokens;
  task.shortened = limit.shortened;
  return task;
}

/// Returns this rank's share of the items, the longest first, read from the pack. Not collective.
std::vector<PredictTask> tasks_of(const pack::PackReader& pack, const loader::ItemSubset& items, const config::RunConfig& config,
                                  const model::ModelConfig& model, int rank, int ranks) {
  const auto tokens = pack.item_tokens(), labels = pack.item_labels();
  const std::size_t count = items ? items->size() : static_cast<std::size_t>(pack.num_items());
  const auto item_at = [&](std::size_t i) { return items ? (*items)[i] : static_cast<std::int64_t>(i); };
  std::vector<std::int64_t> costs;
  for (std::size_t i = 0; i < count; ++i) {
    const auto item = static_cast<std::size_t>(item_at(i));
    costs.push_back(infer::cost_of(tokens[item], labels[item]));
  }
  std::vector<PredictTask> tasks;
  pack::FlatItem flat;
  for (const std::size_t i : infer::assigned_to(rank, costs, ranks)) {
    tasks.push_back(read_task(pack, item_at(i), config, model, flat));
    tasks.back().order = static_cast<std::int64_t>(i);
  }
  return tasks;
}

/// An answer in the form that ranks exchange.
struct Answered {
  std::int64_t order = 0;  ///< among all items
  std::int64_t new_tokens = 0;
  Prediction sample;
};

void to_json(nlohmann::json& json, const Answered& a) {
  const auto& [prompt, predict, label, scores] = a.sample;
  json = {a.order, a.new_tokens, prompt, predict, label};
  for (const auto& score : kScoreNames) json.push_back(scores.*score.value);
}

void from_json(const nlohmann::json& json, Answered& a) {
  std::size_t at = 0;
  const auto take = [&](auto& value) { json.at(at++).get_to(value); };
  take(a.order), take(a.new_tokens), take(a.sample.prompt), take(a.sample.predict), take(a.sample.label);
  for (const auto& score : kScoreNames) take(a.sample.scores.*score.value);
}

Answered answered(const PredictTask& task, const infer::Answer& answer, const tokenizer::Tokenizer& tokenizer, bool skip_special,
                  WordCutter& cutter) {
  const auto text = [&](const std::vector<std::int32_t>& ids, bool skip) {
    return replace_invalid_utf8(tokenizer.decode(ids, skip));
  };
  Answered a;
  a.order = task.order;
  a.new_tokens = static_cast<std::int64_t>(answer.ids.size()) + (answer.stop >= 0 ? 1 : 0);
  a.sample.prompt = text(task.prompt, false);
  a.sample.predict = text(answer.ids, skip_special);
  a.sample.label = text(task.label, skip_special);
  a.sample.scores = score(tokenizer.decode(answer.ids, true), tokenizer.decode(task.label, true), cutter);
  return a;
}

/// Returns the answers of all data ranks in order. Collective.
std::vector<Answered> gather(const std::vector<Answered>& mine, comm::Communicator& data) {
  std::vector<Answered> all;
  for (const auto& text : comm::all_gather_strings(data, nlohmann::json(mine).dump()))
    for (const auto& entry : nlohmann::json::parse(text)) all.push_back(entry.get<Answered>());
  std::ranges::sort(all, {}, &Answered::order);
  return all;
}

/// Computes sums and means of `all`; rank 0 keeps the samples.
PredictResult summary(std::vector<Answered> all, int rank) {
  PredictResult result;
  result.items = static_cast<std::int64_t>(all.size());
  for (Answered& a : all) {
    for (const auto& [name, value] : kScoreNames) result.mean.*value += a.sample.scores.*value;
    result.new_tokens += a.new_tokens;
    if (rank == 0) result.samples.push_back(std::move(a.sample));
  }
  for (const auto& [name, value] : kScoreNames) result.mean.*value /= static_cast<double>(all.size());
  return result;
}

/// Returns "jieba" or "characters". Collective.
std::string words_of(const WordCutter& cutter, comm::Communicator& comm) {
  const auto lacking = comm::all_reduce_value(comm, static_cast<std::int32_t>(cutter.lacked_dictionary()));
  if (lacking == 0) return "jieba";
  if (comm.rank() == 0)
    log::warn(
        "ROUGE counts each Chinese character as a word, so it is not comparable with LLaMA-Factory's: jieba's dictionary is not "
        "in share/qft/jieba; set JIEBA_DICT to one (the dict.txt of the Python package jieba)");
  return "characters";
}

}  // namespace

nlohmann::json PredictResult::values() const {
  const auto count = static_cast<double>(items);
  nlohmann::json json = {{"predict_runtime", rounded(seconds, 1e4)},
                         {"predict_model_preparation_time", rounded(preparation_seconds, 1e4)},
                         {"predict_samples_per_second", rounded(count / seconds, 1e3)},
                         {"predict_seconds_per_sample", rounded(seconds / count, 1e4)},
                         {"predict_tokens_per_second", rounded(static_cast<double>(new_tokens) / seconds, 1e3)},
                         {"predict_memory_peak", memory_peak},
                         {"predict_words", words}};
  for (const auto& [name, value] : kScoreNames) json[fmt::format("predict_{}", name)] = mean.*value;
  return json;
}

PredictResult predict(engine::Instance& instance, const pack::PackReader& pack, const loader::ItemSubset& items,
                      const config::RunConfig& config, comm::Communicator& comm) {
  const auto start = std::chrono::steady_clock::now();
  std::optional<encode::ChatTemplate> chat;
  std::optional<WordCutter> cutter;
  std::vector<PredictTask> tasks;
  std::vector<std::int32_t> stop_ids;
  comm::Communicator& data = instance.groups().data();
  comm::agreed(comm, [&] {
    chat = encode::ChatTemplate::from_config(config, tokenizer::Tokenizer::load(config.tokenizer_path()));
    cutter.emplace();
    tasks = tasks_of(pack, items, config, instance.spec().config, data.rank(), data.size());
    stop_ids = infer::stop_tokens(chat->stop_token_ids(), chat->tokenizer(), instance.spec().config);
  });
  infer::warn_about_shortened_answers(std::ranges::count_if(tasks, &PredictTask::shortened), instance);
  std::vector<infer::Request> requests;
  for (const auto& task : tasks) requests.push_back({task.prompt, task.max_new_tokens, static_cast<std::uint64_t>(task.item)});
  Progress bar("predict", static_cast<std::int64_t>(tasks.size()), comm.rank() == 0);
  std::vector<Answered> mine;
  infer::answer_all(instance, requests, config, stop_ids, comm, [&](std::size_t number, const infer::Answer& answer) {
    mine.push_back(answered(tasks[number], answer, chat->tokenizer(), config.generate.skip_special_tokens, *cutter));
    bar.update(static_cast<std::int64_t>(mine.size()));
  });
  bar.clear();
  PredictResult result = summary(gather(mine, data), comm.rank());
  // Ranks that share sequences answer apart, and a device's answers may differ, but all ranks must decide alike.
  for (const auto& [name, value] : kScoreNames) result.mean.*value = comm::broadcast_value(comm, result.mean.*value);
  result.words = words_of(*cutter, comm);
  result.memory_peak =
      comm::all_reduce_value(comm, device::memory_use(instance.transformer().device()).peak, comm::ReduceOp::max);
  result.preparation_seconds = instance.load_report().seconds;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace qft::eval
