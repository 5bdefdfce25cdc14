#include "qft/eval/predict.h"

#include "qft/comm/exchange.h"
#include "qft/core/error.h"
#include "qft/core/progress.h"
#include "qft/encode/chat_template.h"
#include "qft/infer/generator.h"
#include "qft/io/storage.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <optional>

#include "predict_tasks.h"
#include <nlohmann/json.hpp>

namespace qft::eval {
namespace {

/// A line of the file, with what is to be averaged.
struct Line {
  std::int64_t order = 0;  ///< among all items
  std::string text;
  std::array<double, 4> scores{};  ///< in the order of TextScores
  std::int64_t new_tokens = 0;
  NLOHMANN_DEFINE_TYPE_INTRUSIVE(Line, order, text, scores, new_tokens)
};

/// As Python's json.dumps() writes it.
std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Line line_of(const PredictTask& task, const infer::Answer& answer, const tokenizer::Tokenizer& tokenizer, bool skip_special,
             WordCutter& cutter) {
  std::vector<std::int32_t> said = answer.ids;
  if (answer.stop >= 0) said.push_back(answer.stop);
  Line line;
  line.order = task.order;
  line.text = fmt::format("{{\"prompt\": {}, \"predict\": {}, \"label\": {}}}\n", quoted(tokenizer.decode(task.prompt)),
                          quoted(tokenizer.decode(skip_special ? answer.ids : said, skip_special)),
                          quoted(tokenizer.decode(task.label, skip_special)));
  const TextScores s = score(tokenizer.decode(answer.ids, true), tokenizer.decode(task.label, true), cutter);
  line.scores = {s.bleu_4, s.rouge_1, s.rouge_2, s.rouge_l};
  line.new_tokens = static_cast<std::int64_t>(said.size());
  return line;
}

std::vector<Line> answer_all(infer::Decoder& decoder, const std::vector<PredictTask>& tasks, const config::RunConfig& config,
                             const encode::ChatTemplate& chat, WordCutter& cutter, Progress& bar) {
  std::vector<Line> lines;
  std::vector<infer::Request> requests;
  for (const auto& task : tasks) requests.push_back({task.prompt, task.max_new_tokens, static_cast<std::uint64_t>(task.item)});
  infer::generate_all(
      decoder, infer::sampler_options(config), requests, chat.stop_token_ids(),
      [&](std::size_t number, const infer::Answer& answer) {
        lines.push_back(line_of(tasks[number], answer, chat.tokenizer(), config.generate.skip_special_tokens, cutter));
        bar.update(static_cast<std::int64_t>(lines.size()));
      });
  return lines;
}

/// The lines of all ranks in order. Collective.
std::vector<Line> gather(const std::vector<Line>& mine, comm::Communicator& comm) {
  std::vector<Line> all;
  for (const auto& text : comm::all_gather_strings(comm, nlohmann::json(mine).dump()))
    for (const auto& line : nlohmann::json::parse(text)) all.push_back(line.get<Line>());
  std::ranges::sort(all, {}, &Line::order);
  return all;
}

double rounded(double value, double decimals) {
  return std::round(value * decimals) / decimals;
}

}  // namespace

std::map<std::string, double> PredictResult::values() const {
  return {{"predict_bleu-4", mean.bleu_4},
          {"predict_rouge-1", mean.rouge_1},
          {"predict_rouge-2", mean.rouge_2},
          {"predict_rouge-l", mean.rouge_l},
          {"predict_runtime", rounded(seconds, 1e4)},
          {"predict_samples_per_second", rounded(static_cast<double>(items) / seconds, 1e3)},
          {"predict_tokens_per_second", rounded(static_cast<double>(new_tokens) / seconds, 1e3)}};
}

PredictResult predict(engine::Instance& instance, const pack::PackReader& pack, const loader::ItemSubset& items,
                      const config::RunConfig& config, comm::Communicator& comm, const std::filesystem::path& file) {
  const auto start = std::chrono::steady_clock::now();
  std::optional<encode::ChatTemplate> chat;
  std::optional<WordCutter> cutter;
  std::vector<PredictTask> tasks;
  comm::agreed(comm, [&] {
    chat = encode::ChatTemplate::from_config(config, tokenizer::Tokenizer::load(config.tokenizer_path()));
    cutter.emplace();
    tasks = tasks_of(pack, items, config, instance.spec().config, comm.rank(), comm.size());
  });
  warn_of_short_answers(tasks, instance.spec().config, comm);
  const DecoderRoom room = room_for(tasks, instance, config, comm);
  infer::Decoder decoder(instance, room.capacity, room.slots);
  std::vector<Line> mine;
  comm::agreed(comm, [&] {
    Progress bar("predict", static_cast<std::int64_t>(tasks.size()), comm.rank() == 0);
    mine = answer_all(decoder, tasks, config, *chat, *cutter, bar);
  });
  const std::vector<Line> all = gather(mine, comm);
  comm::agreed(comm, [&] {
    if (comm.rank() != 0) return;
    std::string text;
    for (const Line& line : all) text += line.text;
    io::atomic_write_file(io::posix_storage(), file, text);
  });
  PredictResult result;
  result.items = static_cast<std::int64_t>(all.size());
  std::array<double, 4> sums{};
  for (const Line& line : all) {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += line.scores[i];
    result.new_tokens += line.new_tokens;
  }
  for (double& sum : sums) sum /= static_cast<double>(all.size());
  result.mean = {sums[0], sums[1], sums[2], sums[3]};
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace qft::eval
