#include "qft/eval/compare.h"

#include "qft/comm/exchange.h"
#include "qft/core/error.h"
#include "qft/eval/evaluate.h"
#include "qft/infer/load_model.h"
#include "qft/io/storage.h"

#include <filesystem>
#include <string>

#include <nlohmann/json.hpp>

namespace qft::eval {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr const char* kAdapterKey = "adapter_name_or_path";

/// Returns the run without adapter.
config::RunConfig base_of(const config::RunConfig& config) {
  config::RunConfig base = config;
  base.model.adapter_name_or_path.clear();
  base.given[kAdapterKey] = "--compare";  // suppresses the warning about an unused training result
  return base;
}

/// Returns the run with the trained adapter or model. Collective.
config::RunConfig tuned_of(const config::RunConfig& config, comm::Communicator& comm) {
  config::RunConfig tuned = config;
  if (!config.model.adapter_name_or_path.empty()) return tuned;
  const std::string result = comm::on_root(comm, [&] {
    const std::string dir = infer::unused_result(config).string();
    if (dir.empty())
      fail_config(
          "--compare needs a tuned model beside the base '{}': set adapter_name_or_path, or the output_dir of the training; '{}' "
          "holds none",
          config.model.model_name_or_path, config.training.output_dir);
    return dir;
  });
  if (infer::holds_adapter(result)) {
    tuned.model.adapter_name_or_path = {result};
  } else {  // with the base's tokenizer, so that both models get the same tokens
    if (tuned.model.tokenizer_name_or_path.empty()) tuned.model.tokenizer_name_or_path = tuned.model.model_name_or_path;
    tuned.model.model_name_or_path = result;
  }
  tuned.given[kAdapterKey] = "--compare";
  return tuned;
}

ordered_json summary_of(const ordered_json& base, const ordered_json& tuned) {
  ordered_json difference = ordered_json::object();
  for (const auto& [key, value] : tuned.items())
    if (value.is_number_float() && base.contains(key)) difference[key] = value.get<double>() - base[key].get<double>();
  return {{"base", base}, {"tuned", tuned}, {"difference", difference}};
}

ordered_json scores_of(const Prediction& p) {
  ordered_json scores;
  for (const auto& [name, value] : kScoreNames) scores[name] = p.scores.*value;
  return scores;
}

std::string lines_of(const PredictResult& base, const PredictResult& tuned) {
  std::string lines;
  for (std::size_t i = 0; i < tuned.samples.size(); ++i) {
    const Prediction &b = base.samples.at(i), &t = tuned.samples[i];
    const ordered_json line = {{"prompt", t.prompt},          {"label", t.label},
                               {"base", b.predict},           {"predict", t.predict},
                               {"base_scores", scores_of(b)}, {"predict_scores", scores_of(t)}};
    lines += line.dump() + "\n";
  }
  return lines;
}

}  // namespace

ordered_json compare(const config::RunConfig& config, comm::Communicator& comm, c10::Device device) {
  const config::RunConfig base_run = base_of(config), tuned_run = tuned_of(config, comm);
  const Evaluation base = evaluate(base_run, comm, device, {.answers = true, .files = false});
  const Evaluation tuned = evaluate(tuned_run, comm, device, {.answers = true});
  const ordered_json summary = summary_of(to_json(base, base_run), to_json(tuned, tuned_run));
  comm::agreed(comm, [&] {
    if (comm.rank() != 0) return;
    const fs::path dir = config.training.output_dir;
    auto& storage = io::posix_storage();
    io::atomic_write_file(storage, dir / kComparedFile, lines_of(*base.answers, *tuned.answers));
    io::atomic_write_file(storage, dir / "compare_results.json", summary.dump(4) + "\n");
  });
  return summary;
}

}  // namespace qft::eval
