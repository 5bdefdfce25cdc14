#include "qft/eval/evaluate.h"

#include "qft/comm/exchange.h"
#include "qft/core/activity.h"
#include "qft/core/error.h"
#include "qft/core/json.h"
#include "qft/core/units.h"
#include "qft/device/memory.h"
#include "qft/infer/load_model.h"
#include "qft/io/file.h"
#include "qft/io/storage.h"

#include <vector>

#include "lines_file.h"
#include "rounded.h"
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace qft::eval {
namespace {

namespace fs = std::filesystem;

constexpr const char *kPerplexity = "perplexity", *kRuntime = "_runtime", *kSamplesPerSecond = "_samples_per_second",
                     *kStepsPerSecond = "_steps_per_second";

/// Returns one JSON line per sequence of a micro-batch: {"ids": [...], "positions": [...], "logprobs": [...]}; positions index
/// ids, logprobs are natural logarithms.
std::string logprobs_lines(const loader::MicroBatch& batch, const at::Tensor& logprobs) {
  std::string text;
  const float* values = logprobs.const_data_ptr<float>();
  std::size_t label = 0;
  for (std::size_t s = 0; s + 1 < batch.cu_seqlens.size(); ++s) {
    const std::int32_t begin = batch.cu_seqlens[s], end = batch.cu_seqlens[s + 1];
    nlohmann::ordered_json line = {{"ids", std::vector<std::int32_t>(batch.tokens.begin() + begin, batch.tokens.begin() + end)},
                                   {"positions", nlohmann::ordered_json::array()},
                                   {"logprobs", nlohmann::ordered_json::array()}};
    for (; label < batch.label_positions.size() && batch.label_positions[label] < end; ++label) {
      line["positions"].push_back(batch.label_positions[label] - begin);
      line["logprobs"].push_back(values[label]);
    }
    text += line.dump() + "\n";
  }
  return text;
}

PerplexityResult likelihood_of(engine::Instance& instance, engine::ColumnSource* reference, const engine::EvalSet& set,
                               const config::RunConfig& config, comm::Communicator& comm) {
  std::optional<LinesFile> file;
  if (!config.eval.predict_logprobs.empty()) file.emplace(config.eval.predict_logprobs, "predict_logprobs", instance.groups());
  const HeadValues write = [&](const loader::MicroBatch& batch, const at::Tensor& values) {
    file->add(batch.tokens.empty() ? "" : logprobs_lines(batch, values));
  };
  const auto result = eval::evaluate(config, instance, reference, set, comm, file ? write : HeadValues(), "eval");
  if (file) file->close();
  return result;
}

/// Formats the line as Python's json.dumps() does, except that non-ASCII characters stay unescaped.
std::string line_of(const Prediction& p) {
  const auto quoted = [](const std::string& text) { return nlohmann::json(text).dump(); };
  return fmt::format("{{\"prompt\": {}, \"predict\": {}, \"label\": {}}}\n", quoted(p.prompt), quoted(p.predict),
                     quoted(p.label));
}

void write_answers(const fs::path& dir, const PredictResult& result) {
  std::string lines;
  for (const Prediction& p : result.samples) lines += line_of(p);
  io::atomic_write_file(io::posix_storage(), dir / kPredictionsFile, lines);
  write_results(dir, "predict", result.values());
}

PredictResult answers_of(engine::Instance& instance, const engine::EvalSet& set, const config::RunConfig& config,
                         comm::Communicator& comm, bool files) {
  const activity::Phase phase("predict");
  device::reset_peak(instance.transformer().device());
  auto result = predict(instance, *set.pack, set.items, config, comm);
  comm::agreed(comm, [&] {
    if (comm.rank() == 0 && files) write_answers(config.training.output_dir, result);
  });
  return result;
}

/// Adds HF's names with the prefix "eval" or "eval_<dataset>".
void add_values(std::map<std::string, double>& values, const std::string& prefix, const Likelihood& r) {
  const auto rate = [&](std::int64_t count) { return rounded(static_cast<double>(count) / r.seconds, 1e3); };
  values[prefix + "_loss"] = r.loss;
  values[prefix + kRuntime] = rounded(r.seconds, 1e4);
  values[prefix + kSamplesPerSecond] = rate(r.items);
  values[prefix + kStepsPerSecond] = rate(r.steps);
  for (const auto& [name, value] : r.metrics) values[fmt::format("{}_{}", prefix, name)] = value;
}

void add_values(std::map<std::string, double>& values, const std::string& prefix, const TextScores& scores) {
  for (const auto& [name, value] : kScoreNames) values[fmt::format("{}_{}", prefix, name)] = scores.*value;
}

}  // namespace

PredictResult predict(engine::Instance& instance, const engine::EvalSet& set, const config::RunConfig& config,
                      comm::Communicator& comm) {
  return answers_of(instance, set, config, comm, /*files=*/true);
}

Evaluation evaluate(const config::RunConfig& config, comm::Communicator& comm, c10::Device device,
                    const EvaluationParts& wanted) {
  const fs::path dir = config.training.output_dir;
  const bool writes = comm.rank() == 0 && !dir.empty() && wanted.files;
  const auto source = engine::ModelSource::read(config, engine::Use::inference, comm);
  comm::agreed(comm, [&] {
    if (writes) io::probe_writable(dir);
    if (wanted.likelihood) engine::require_shareable_prompts(config, source.config().rope);
  });
  const auto instance = infer::load_for_inference(config, source, comm, device);
  const auto set = engine::open_eval_data(config, instance->spec().config, comm);
  bool needs_labels = wanted.likelihood;  // anchors alone have embeddings, but no loss
  comm::agreed(comm, [&] { needs_labels = needs_labels || engine::has_documents(set, config); });
  if (needs_labels) engine::require_labels(set, config, comm);
  const auto reference = wanted.likelihood ? engine::load_reference_beside(config, source, *instance, comm, device) : nullptr;
  Evaluation result{config.model.model_name_or_path,
                    source.live() ? source.live()->dir.string() : std::string(),
                    infer::compute_type_name(*instance),
                    {},
                    {},
                    {}};
  if (wanted.likelihood) {
    result.likelihood = likelihood_of(*instance, reference.get(), set, config, comm);
    comm::agreed(comm, [&] {
      if (writes) write_results(dir, "eval", eval_values(*result.likelihood, config));
    });
  }
  if (wanted.answers && config.stage().outputs_scores())
    result.scores = predict_scores(*instance, set, config, comm);
  else if (wanted.answers)
    result.answers = answers_of(*instance, set, config, comm, wanted.files);
  return result;
}

nlohmann::ordered_json to_json(const Evaluation& e, const config::RunConfig& config) {
  nlohmann::ordered_json json = {
      {"model_name_or_path", e.model},
      {"adapter_name_or_path", e.adapter.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(e.adapter)},
      {"dtype", e.dtype}};
  if (e.likelihood) {
    for (const auto& [key, value] : eval_values(*e.likelihood, config)) json[key] = value;
    json["label_tokens"] = e.likelihood->label_tokens;
    json["tokens"] = e.likelihood->tokens;
    json["items"] = e.likelihood->items;
  }
  if (e.scores) json.update(nlohmann::ordered_json(e.scores->values()));
  if (e.answers) json.update(nlohmann::ordered_json(e.answers->values()));
  return json;
}

std::map<std::string, double> eval_values(const PerplexityResult& r, const config::RunConfig& config) {
  std::map<std::string, double> values;
  add_values(values, "eval", r);
  if (r.perplexity) values[kPerplexity] = *r.perplexity;
  if (const std::string_view alias = config.stage().perplexity_alias; r.perplexity && !alias.empty())
    values[std::string(alias)] = *r.perplexity;
  for (const auto& [name, part] : r.by_dataset) {
    add_values(values, "eval_" + name, part);
    if (part.perplexity) values[fmt::format("eval_{}_perplexity", name)] = *part.perplexity;
  }
  return values;
}

std::map<std::string, double> answer_values(engine::Instance& instance, const engine::EvalSet& set,
                                            const config::RunConfig& config, comm::Communicator& comm) {
  std::map<std::string, double> values;
  if (!config.data.eval_on_each_dataset) {
    add_values(values, "eval", predict(instance, *set.pack, set.items, config, comm).mean);
    return values;
  }
  TextScores whole;
  double items = 0;
  for (const auto& [name, part] : set.by_dataset()) {
    const PredictResult result = predict(instance, *part.pack, part.items, config, comm);
    add_values(values, "eval_" + name, result.mean);
    const auto count = static_cast<double>(result.items);
    items += count;
    for (const auto& [score, value] : kScoreNames) whole.*value += (result.mean.*value - whole.*value) * count / items;
  }
  add_values(values, "eval", whole);
  return values;
}

bool is_quality_metric(std::string_view name) {
  return name != kPerplexity && !name.ends_with(kRuntime) && !name.ends_with(kSamplesPerSecond) &&
         !name.ends_with(kStepsPerSecond);
}

std::string metric_key(const config::RunConfig& config, const engine::EvalSet& set) {
  PerplexityResult empty;
  for (const std::string& name : metric_names(config)) empty.metrics[name] = 0.0;
  if (reports_perplexity(config)) empty.perplexity = 0.0;
  empty.seconds = 1.0;
  if (config.data.eval_on_each_dataset)
    for (const auto& [name, part] : set.by_dataset()) empty.by_dataset.emplace_back(name, Likelihood(empty));
  auto values = eval_values(empty, config);
  if (config.eval.predict_with_generate) {
    add_values(values, "eval", TextScores{});
    for (const auto& [name, part] : empty.by_dataset) add_values(values, "eval_" + name, TextScores{});
  }
  const std::string& asked = config.training.metric_for_best_model;
  const std::string prefixed = asked.starts_with("eval_") ? asked : "eval_" + asked;
  for (const std::string& key : {prefixed, asked})
    if (values.contains(key)) return key;
  std::vector<std::string> names;
  for (const auto& [name, value] : values)
    if (is_quality_metric(name) || name == kPerplexity) names.push_back(name);
  const auto given = config.given.find("metric_for_best_model");
  fail_config("{}metric_for_best_model is {}, which evaluations of this run do not report: name one of {}",
              given == config.given.end() ? "" : given->second + ": ", asked, fmt::join(names, ", "));
}

void write_results(const fs::path& dir, const std::string& split, const nlohmann::json& values) {
  nlohmann::ordered_json own;
  for (const auto& [key, value] : values.items())
    own[key] = value.is_number_float() ? json_number(value.get<double>()) : nlohmann::ordered_json(value);
  auto& storage = io::posix_storage();
  io::atomic_write_file(storage, dir / (split + "_results.json"), own.dump(4) + "\n");
  nlohmann::ordered_json all;
  const auto path = dir / "all_results.json";
  if (fs::exists(path)) {
    try {
      all = parse_json<nlohmann::ordered_json>(io::read_text_file(path), path.string());
    } catch (const Error&) {  // truncated by a kill: start anew
    }
    if (!all.is_object()) all = nlohmann::ordered_json::object();
  }
  all.update(own);
  io::atomic_write_file(storage, path, all.dump(4) + "\n");
}

std::string describe(const ScoreResult& r) {
  if (r.records)
    return fmt::format("{} of {} records in {}; '{}'", r.vectors ? "embeddings" : "scores", r.items, format_duration(r.seconds),
                       r.file);
  if (r.classes)
    return fmt::format("labels of {} texts in {}{}; '{}'", r.items, format_duration(r.seconds),
                       r.metrics.contains("acc") ? fmt::format(": acc {:.4f}", r.metrics.at("acc")) : "", r.file);
  return fmt::format("scores of {} pairs in {}: accuracy {:.4f}, margin {:.4f}; '{}'", r.items, format_duration(r.seconds),
                     r.metrics.at("accuracy"), r.metrics.at("rewards/margins"), r.file);
}

std::string describe(const PredictResult& r, const fs::path& dir) {
  return fmt::format("answers to {} samples in {}: BLEU-4 {:.2f}, ROUGE-1 {:.2f}, ROUGE-2 {:.2f}, ROUGE-L {:.2f}; '{}'", r.items,
                     format_duration(r.seconds), r.mean.bleu_4, r.mean.rouge_1, r.mean.rouge_2, r.mean.rouge_l,
                     (dir / kPredictionsFile).string());
}

}  // namespace qft::eval
