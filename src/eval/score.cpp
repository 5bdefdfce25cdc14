#include "qft/eval/score.h"

#include "qft/comm/exchange.h"
#include "qft/core/activity.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/core/progress.h"
#include "qft/encode/dataset_info.h"
#include "qft/eval/evaluate.h"
#include "qft/infer/load_model.h"
#include "qft/io/file.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "class_lines.h"
#include "forward_pass.h"
#include "lines_file.h"
#include "rounded.h"
#include <nlohmann/json.hpp>

namespace qft::eval {
namespace {

namespace fs = std::filesystem;

/// Statistics over this rank's scores so far.
struct ScoreRange {
  double lowest = std::numeric_limits<double>::infinity(), highest = -lowest, sum = 0.0;
  std::int64_t count = 0;

  void add(double score) { lowest = std::min(lowest, score), highest = std::max(highest, score), sum += score, ++count; }
  void report(ScoreResult& result, comm::Communicator& data) const {
    result.lowest = comm::all_reduce_value(data, lowest, comm::ReduceOp::min);
    result.highest = comm::all_reduce_value(data, highest, comm::ReduceOp::max);
    result.mean = comm::all_reduce_value(data, sum, comm::ReduceOp::sum) /
                  static_cast<double>(comm::all_reduce_value(data, count, comm::ReduceOp::sum));
  }
};

/// Formats an item's values as JSON members.
using Members = std::function<std::string(std::span<const float> values)>;

std::string pair_members(std::span<const float> scores) {
  return fmt::format(R"("chosen": {}, "rejected": {})", float_text(scores[0]), float_text(scores[1]));
}

std::string score_member(std::span<const float> scores) {
  return fmt::format(R"("score": {})", float_text(scores[0]));
}

/// Returns one line per item. `origin`: formats the first members from the item's number in the pack.
std::string lines_of(const loader::MicroBatch& batch, std::span<const float> values, const Members& members,
                     const std::function<std::string(std::int64_t item)>& origin) {
  std::string lines;
  const std::size_t each = values.size() / batch.samples.size();
  for (std::size_t i = 0; i < batch.items.size(); ++i) {
    const auto first = static_cast<std::size_t>(batch.item_offsets[i]),
               last = static_cast<std::size_t>(batch.item_offsets[i + 1]);
    lines += fmt::format("{{{}{}}}\n", origin ? origin(batch.items[i]) : std::string(),
                         members(values.subspan(first * each, (last - first) * each)));
  }
  return lines;
}

std::string origin_of(const pack::PackReader& pack, std::int64_t item) {
  const encode::EncodedItem encoded = pack.origin(item);
  const std::string& name = pack.attributes().sources.at(static_cast<std::size_t>(encoded.dataset)).name;
  return fmt::format(R"("dataset": {}, "index": {}, )", nlohmann::json(name).dump(), encoded.source_index);
}

/// Returns the function that formats an item's values. Rank 0 notes a problem_type that is assumed.
Members members_of(const ScoreResult& result, const model::Head& head, const config::RunConfig& config,
                   const comm::Communicator& comm) {
  if (result.vectors) return [width = head.values](std::span<const float> values) { return vector_members(width, values); };
  if (result.records) return ranking_members;
  if (!result.classes) return result.pairs ? pair_members : score_member;
  const std::string problem = config.finetuning.effective_problem_type(head.values);
  if (config.finetuning.problem_type.empty() && comm.rank() == 0)
    log::info("problem_type is not set, assuming {}: set it if the classifier was trained with another one", problem);
  return [problem](std::span<const float> values) { return class_members(problem, values); };
}

/// Scores every item of the set and writes `file`. `config` must be in a stage that outputs scores.
ScoreResult score_set(engine::Instance& instance, engine::EvalSet set, const config::RunConfig& config, comm::Communicator& comm,
                      const fs::path& path, bool tells_origin) {
  const auto start = std::chrono::steady_clock::now();
  const bool records = config.stage().limits != nullptr;
  set.whole_items = records;
  const auto loader = set.loader(config, comm);
  ScoreResult result{.file = path.string(),
                     .pairs = !records && set.pack->attributes().sequences_per_item == 2,
                     .classes = !records && instance.spec().head.classifies(),
                     .records = records,
                     .vectors = instance.spec().head.kind == model::Head::Kind::vector,
                     .items = loader->num_items(),
                     .tokens = loader->global_tokens()};
  const Members members = members_of(result, instance.spec().head, config, comm);
  LinesFile file(path, "scores", instance.groups());
  ScoreRange range;
  std::function<std::string(std::int64_t)> origin;
  if (tells_origin) origin = [&](std::int64_t item) { return origin_of(*set.pack, item); };
  const HeadValues write = [&](const loader::MicroBatch& batch, const at::Tensor& values) {
    std::string lines;
    if (!batch.tokens.empty()) {
      const std::span scores(values.const_data_ptr<float>(), static_cast<std::size_t>(values.numel()));
      for (const float score : scores) range.add(static_cast<double>(score));
      lines = lines_of(batch, scores, members, origin);
    }
    file.add(lines);
  };
  if (result.pairs || (result.classes && engine::has_labels(set))) {
    const PerplexityResult scored = evaluate(config, instance, nullptr, set, comm, write, "score");
    result.metrics = scored.metrics;
    result.metrics["loss"] = scored.loss;
  } else {
    const auto inputs = [&](std::span<const loader::MicroBatch> batches, std::int64_t) {
      std::vector<model::MicroInput> all;
      for (const auto& batch : batches) all.push_back(instance.input(batch));
      return all;
    };
    Progress bar("score", loader->max_micro_batches(), comm.rank() == 0);
    forward_pass(instance, *loader, inputs, {.values = write, .progress = [&](std::int64_t done) { bar.update(done); }});
  }
  file.close();
  range.report(result, instance.groups().data());
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

config::RunConfig in_stage(config::RunConfig config, std::string_view stage) {
  config.finetuning.stage = stage;
  return config;
}

/// Returns the name of the stage that matches the data; a pack's stage is known already.
std::string_view stage_of_data(const config::RunConfig& config) {
  const config::Stage& stage = config.stage();
  if (stage.classifies() || stage.limits != nullptr) return stage.name;
  const config::DataArgs& d = config.data;
  const auto& names = d.eval_pack.empty() && !d.eval_dataset.empty() ? d.eval_dataset : d.dataset;
  const bool pack = !d.eval_pack.empty() || (d.eval_dataset.empty() && !d.pack.empty());
  if (pack) {
    if (stage.has_pairs() || stage.sample == config::SampleKind::conversation) return stage.name;
    fail_config("the pack is for stage {}: qft score takes pairs (stages rm and dpo), single answers (sft) and texts (seq_cls)",
                stage.name);
  }
  const auto specs = encode::load_dataset_info(config.folder_of(d.dataset_dir), names, config.folders);
  const auto pairs = std::ranges::count_if(specs, [](const encode::DatasetSpec& spec) { return spec.ranking; });
  if (pairs > 0 && pairs < std::ssize(specs))
    fail_config(
        "{} of the {} datasets hold preference pairs (ranking in dataset_info.json), the others single answers: score "
        "them one after another",
        pairs, specs.size());
  return pairs > 0 ? "rm" : "sft";
}

}  // namespace

nlohmann::json ScoreResult::values() const {
  nlohmann::json all = {{"predict_runtime", rounded(seconds, 1e4)},
                        {"predict_samples_per_second", rounded(static_cast<double>(items) / seconds, 1e3)}};
  for (const auto& [name, value] : metrics) all["predict_" + name] = value;
  return all;
}

ScoreResult score(const config::RunConfig& config, comm::Communicator& comm, c10::Device device, const fs::path& file) {
  const bool records = config.stage().limits != nullptr;
  const config::RunConfig scoring = config.stage().classifies() || records ? config : in_stage(config, "rm");
  std::string_view stage;
  comm::agreed(comm, [&] {
    stage = stage_of_data(config);
    if (comm.rank() == 0) io::probe_writable(file.has_parent_path() ? file.parent_path() : fs::path("."));
  });
  const auto instance = infer::load_for_inference(scoring, comm, device);
  const auto set = engine::open_eval_data(in_stage(config, stage), instance->spec().config, comm);
  if (scoring.stage().classifies() && !records && engine::has_labels(set)) engine::require_labels(set, scoring, comm);
  const activity::Phase phase("score");
  return score_set(*instance, set, scoring, comm, file, /*tells_origin=*/true);
}

ScoreResult predict_scores(engine::Instance& instance, const engine::EvalSet& set, const config::RunConfig& config,
                           comm::Communicator& comm) {
  const activity::Phase phase("predict");
  const fs::path dir = config.training.output_dir;
  ScoreResult result = score_set(instance, set, config, comm, dir / kPredictionsFile, /*tells_origin=*/false);
  comm::agreed(comm, [&] {
    if (comm.rank() == 0) write_results(dir, "predict", result.values());
  });
  return result;
}

}  // namespace qft::eval
