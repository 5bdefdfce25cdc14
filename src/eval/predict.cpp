#include "qft/eval/predict.h"

#include "qft/comm/exchange.h"
#include "qft/core/error.h"
#include "qft/core/json.h"
#include "qft/core/log.h"
#include "qft/core/progress.h"
#include "qft/device/memory.h"
#include "qft/encode/chat_template.h"
#include "qft/infer/answer_all.h"
#include "qft/infer/stop_tokens.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "predict_tasks.h"
#include "rounded.h"
#include <nlohmann/json.hpp>

namespace qft::eval {
namespace {

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
  result.words = words_of(*cutter, comm);
  result.memory_peak =
      comm::all_reduce_value(comm, device::memory_use(instance.transformer().device()).peak, comm::ReduceOp::max);
  result.preparation_seconds = instance.load_report().seconds;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace qft::eval
