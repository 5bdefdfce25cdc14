#include "predict_tasks.h"

#include "qft/core/error.h"
#include "qft/infer/answer_all.h"

namespace qft::eval {
namespace {

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

}  // namespace

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

}  // namespace qft::eval
