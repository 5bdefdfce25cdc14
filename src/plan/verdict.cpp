#include "qft/plan/verdict.h"

#include "qft/core/error.h"
#include "qft/core/units.h"
#include "qft/plan/resolve.h"

#include <utility>

#include "degrees.h"
#include "page.h"
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace qft::plan {
namespace {

constexpr std::int64_t kMostRows = 4096;  ///< of a micro-batch: far beyond any useful one
constexpr int kMostTimesRanks = 64;
constexpr Question kMemoryOnly{.only = {}, .times = false, .longest = false};

class Judge {
 public:
  Judge(const Plan& plan, const config::RunConfig& config, const Replan& replan)
      : plan_(plan), config_(config), replan_(replan) {}

  Verdict run() {
    Verdict v;
    v.known = plan_.available > 0;
    v.micro_batch = config_.training.per_device_train_batch_size;
    v.total_steps = plan_.workload.total_steps;
    const Row* taken = taken_of(plan_);
    v.fits = taken->run.fits;
    v.strategy_text = taken->strategy().name;
    v.row = *taken;
    if (v.known && !v.fits) offload(v);
    if (plan_.machine) take_times(v);
    if (v.known && v.fits) take_largest_micro_batch(v);
    take_degrees(v);
    if (v.known && (!v.fits || !offloaded_.empty())) v.remedies = remedies(v);
    return v;
  }

 private:
  bool automatic() const { return config_.parallel.strategy == "auto"; }

  /// The run's row among a strategy's rows: with the requested number of micro-batches per gather, else the largest that fits.
  const Row* order_of(const Plan& plan, std::string_view name) const {
    const Row *first = nullptr, *last = nullptr;
    for (const Row& row : plan.rows) {
      if (row.strategy().name != name) continue;
      if (first == nullptr || row.group() < first->group()) first = &row;
      if (last == nullptr || row.group() > last->group()) last = &row;
    }
    if (config_.training.breadth_first_micro_batches > 0 || first == nullptr) return last;
    return first->run.fits && first->memory().gathered > 0 ? last : first;
  }

  /// The run's row; if none fits, the one that needs least.
  const Row* way_of(const Plan& plan, int ranks) const {
    if (!automatic()) return order_of(plan, config_.parallel.strategy);
    const Row* least = nullptr;
    for (const std::string_view name : automatic_strategies(ranks, config_.training.deterministic)) {
      const Row* row = order_of(plan, name);
      if (row == nullptr) continue;
      if (row->run.fits) return row;
      if (least == nullptr || row->needed < least->needed) least = row;
    }
    return least;
  }

  /// The run's row, also on ranks that have nothing to shard.
  const Row* taken_of(const Plan& plan) const {
    const Row* row = way_of(plan, plan.ranks);
    return row != nullptr ? row : &plan.rows.front();
  }

  /// Plans a variant. Returns nullopt if its settings contradict each other; `refusal` then has the error.
  std::optional<Plan> planned(const Variant& variant, const Question& question, std::string* refusal = nullptr) const {
    try {
      return replan_(variant, question);
    } catch (const ConfigError& error) {
      if (refusal != nullptr) *refusal = error.what();
      return std::nullopt;
    }
  }

  bool can_offload() const {
    return !plan_.process.on_cpu && !plan_.process.unified && !config_.training.deterministic && !config_.training.cuda_graphs;
  }

  /// Offloads as `strategy: auto` does if nothing else fits.
  void offload(Verdict& v) {
    if (!automatic() || !can_offload()) return;
    const std::string_view last = automatic_strategies(sharing_ranks(config_, plan_.ranks), false).back();
    std::vector<std::string> settings;
    for (const auto& [setting, words] : {std::pair{"offload_optimizer=cpu", " with the optimizer in host memory"},
                                         {"offload_param=cpu", " with optimizer and weights in host memory"}}) {
      settings.emplace_back(setting);
      const auto plan = planned({settings, plan_.ranks}, {.only = last});
      const Row* row = plan ? order_of(*plan, last) : nullptr;
      if (row == nullptr || !row->run.fits) continue;
      v.fits = true;
      v.row = *row;
      v.strategy_text = std::string(last) + words;
      offloaded_ = settings;
      return;
    }
  }

  void take_times(Verdict& v) const {
    const StepTime& t = v.row.time;
    v.step_seconds = t.step;
    if (t.step > 0) v.tokens_per_second = t.tokens / t.step;
    if (v.total_steps > 0) v.run_seconds = t.step * static_cast<double>(v.total_steps);
  }

  /// Doubles until something fails, then bisects.
  void take_largest_micro_batch(Verdict& v) const {
    if (config_.training.max_tokens_per_micro_batch > 0) return;  // the token limit decides
    const std::string name(v.row.strategy().name);
    std::int64_t tokens = plan_.workload.largest.tokens, fitting = v.micro_batch, beyond = 2 * fitting;
    const auto limit_of = [&](std::int64_t rows) -> std::optional<MicroBatchLimit> {
      const auto plan = planned({offloaded_, plan_.ranks, rows}, {.only = name, .times = false, .longest = false}, &v.refusal);
      const Row* row = plan ? order_of(*plan, name) : nullptr;
      if (row == nullptr) return MicroBatchLimit::refused;
      if (plan->workload.largest.tokens <= tokens) {
        const auto& global = config_.training.global_batch_size;
        return global && rows * config_.data_ranks(plan_.ranks) > *global ? MicroBatchLimit::global_batch : MicroBatchLimit::data;
      }
      if (!row->run.fits) return MicroBatchLimit::memory;
      tokens = plan->workload.largest.tokens;
      return std::nullopt;
    };
    const auto fits = [&](std::int64_t rows) {
      const auto limit = limit_of(rows);
      if (limit) v.limit = *limit;
      return !limit;
    };
    for (; beyond <= kMostRows && fits(beyond); beyond *= 2) fitting = beyond;
    while (beyond <= kMostRows && beyond - fitting > 1) {
      const std::int64_t between = fitting + (beyond - fitting) / 2;
      (fits(between) ? fitting : beyond) = between;
    }
    v.largest_micro_batch = fitting;
  }

  void take_degrees(Verdict& v) const {
    const bool timed = plan_.machine.has_value();
    v.degrees = compare_degrees(plan_.ranks, timed, [&](std::int64_t tensor, std::int64_t context) -> std::optional<Row> {
      const auto& own = plan_.rows.front().run.sharding;
      if (tensor == own.tensor_ranks && context == own.context_ranks) return v.row;
      std::string refusal;
      const auto plan = planned({.settings = {}, .ranks = plan_.ranks, .tensor = tensor, .context = context},
                                {.only = {}, .times = true, .longest = false}, &refusal);
      if (plan) return *taken_of(*plan);
      v.refused_degrees.push_back({tensor, context, std::move(refusal)});
      return std::nullopt;
    });
    if (const DegreesRow* better = better_degrees(v.degrees, v.row, timed)) v.better = *better;
  }

  std::optional<Remedy> tried(const std::vector<std::string>& settings, int ranks, const std::string& change) const {
    const auto plan = planned({settings, ranks}, kMemoryOnly);
    const Row* row = plan ? way_of(*plan, ranks) : nullptr;
    if (row == nullptr || !row->run.fits) return std::nullopt;
    return Remedy{change, std::string(row->strategy().name), row->needed};
  }

  /// Settings that save memory and that the run does not use yet.
  std::vector<std::string> savings(const Verdict& v) const {
    std::vector<std::string> all;
    if (!config_.recompute()) all.emplace_back("gradient_checkpointing=true");
    if (v.micro_batch > 1) all.emplace_back("per_device_train_batch_size=1");
    if (!config_.finetuning.trains_adapter()) all.emplace_back("finetuning_type=lora");
    if (!config_.model.quantization_bit) all.emplace_back("quantization_bit=4");
    if (can_offload() && offloaded_.empty())
      for (const auto& [key, value] : {std::pair{"offload_optimizer", config_.parallel.offload_optimizer},
                                       {"offload_param", config_.parallel.offload_param},
                                       {"offload_activations", config_.parallel.offload_activations}})
        if (value != "cpu") all.push_back(fmt::format("{}=cpu", key));
    return all;
  }

  std::vector<Remedy> remedies(const Verdict& v) const {
    std::vector<Remedy> all;
    const auto add = [&](const std::optional<Remedy>& remedy) {
      if (remedy) all.push_back(*remedy);
      return remedy.has_value();
    };
    if (!automatic())
      for (const std::string_view name :
           automatic_strategies(sharing_ranks(config_, plan_.ranks), config_.training.deterministic))
        if (const Row* row = order_of(plan_, name); row != nullptr && row->run.fits && name != config_.parallel.strategy) {
          all.push_back({fmt::format("strategy={}", name), std::string(name), row->needed});
          break;
        }
    if (v.better && !v.fits) all.push_back({settings_of(*v.better), v.better->strategy, v.better->needed});
    const std::vector<std::string> settings = savings(v);
    for (const std::string& setting : settings) add(tried({setting}, plan_.ranks, setting));
    for (int times = 2; times <= kMostTimesRanks; times *= 2)
      if (add(tried({}, plan_.ranks * times, fmt::format("{} ranks", plan_.ranks * times)))) break;
    if (!all.empty()) return all;
    std::vector<std::string> together;
    std::string words;
    for (const std::string& setting : settings) {
      together.push_back(setting);
      words += (words.empty() ? "" : " ") + setting;
      if (together.size() > 1 && add(tried(together, plan_.ranks, words))) break;
    }
    return all;
  }

  const Plan& plan_;
  const config::RunConfig& config_;
  const Replan& replan_;
  std::vector<std::string> offloaded_;  ///< settings of the offloading that makes the run fit
};

std::string bytes_words(std::int64_t bytes) {
  return format_bytes(static_cast<double>(bytes));
}

/// "about 1.0 h", "about 12 min", "about 30 s"
std::string duration_words(double seconds) {
  if (seconds >= 3600) return fmt::format("about {:.1f} h", seconds / 3600);
  if (seconds >= 100) return fmt::format("about {:.0f} min", seconds / 60);
  return fmt::format("about {:.0f} s", seconds);
}

/// Formats with three digits.
std::string short_seconds(double seconds) {
  return seconds >= 9.995    ? fmt::format("{:.1f} s", seconds)
         : seconds >= 0.9995 ? fmt::format("{:.2f} s", seconds)
                             : fmt::format("{:.3g} s", seconds);
}

std::string memory_words(const Plan& plan, const Verdict& v) {
  const auto what = [&] {
    const auto& sharding = v.row.run.sharding;
    std::string degrees;
    for (const auto& [key, ranks] :
         {std::pair{"tensor_parallel", sharding.tensor_ranks}, {"context_parallel", sharding.context_ranks}})
      if (ranks > 1) degrees += fmt::format(" {} {} {}", degrees.empty() ? "with" : "and", key, ranks);
    return fmt::format("{}{} on {} takes {} of the {} that a rank has", v.strategy_text, degrees, count_noun(plan.ranks, "rank"),
                       bytes_words(v.row.needed), bytes_words(plan.available));
  };
  if (v.fits) {
    const std::string host =
        v.row.memory().host > 0 ? fmt::format(", and {} of host memory", bytes_words(v.row.memory().host)) : "";
    return fmt::format("fits: {}{}\n", what(), host);
  }
  return fmt::format("does not fit: {}, and a run may use nine tenths of that\n", what());
}

std::string limit_words(const Verdict& v) {
  switch (v.limit) {
    case MicroBatchLimit::search:
      return "larger ones were not tried";
    case MicroBatchLimit::memory:
      return "more does not fit";
    case MicroBatchLimit::data:
      return "the data has no larger ones";
    case MicroBatchLimit::global_batch:
      return "global_batch_size has no more for a rank";
    case MicroBatchLimit::refused:
      break;
  }
  return "a larger one is refused: " + v.refusal;
}

std::string micro_batch_words(const Verdict& v) {
  if (v.largest_micro_batch == 0) return {};
  const std::string end = limit_words(v);
  if (v.largest_micro_batch == v.micro_batch)
    return fmt::format("largest micro-batch: per_device_train_batch_size {}, as the run has it; {}\n", v.micro_batch, end);
  return fmt::format("largest micro-batch: per_device_train_batch_size {} (the run has {}); {}\n", v.largest_micro_batch,
                     v.micro_batch, end);
}

std::string time_words(const Verdict& v) {
  if (!v.step_seconds) return {};
  std::string text = fmt::format("time: {} a step", short_seconds(*v.step_seconds));
  if (v.tokens_per_second) text += fmt::format(", {:.0f} tokens/s of all ranks", *v.tokens_per_second);
  if (v.run_seconds)
    text += fmt::format("; {} take {}, without loading, evaluation and checkpoints", count_noun(v.total_steps, "step"),
                        duration_words(*v.run_seconds));
  else
    text += "; the number of steps is known after packing the data (qft-pack), or with max_steps";
  return text + "\n";
}

std::string remedy_words(const Verdict& v) {
  if (v.remedies.empty()) return v.fits ? "" : "nothing that was tried fits: use more ranks, and settings that save memory\n";
  std::string text = v.fits ? "what fits without offloading, each planned (key=value, as on the command line):\n"
                            : "what fits, each planned (key=value, as on the command line):\n";
  for (const Remedy& r : v.remedies) text += fmt::format("  {}: {} takes {}\n", r.change, r.strategy_text, bytes_words(r.needed));
  return text;
}

}  // namespace

Verdict judge(const Plan& plan, const config::RunConfig& config, const Replan& replan) {
  return Judge(plan, config, replan).run();
}

std::string to_text(const Plan& plan, const Verdict& v) {
  if (!v.known)
    return wrapped("unknown what fits: name a machine (--machine NAME; --machine list shows which), or set max_memory\n" +
                   time_words(v) + degrees_words(v));
  std::string text = memory_words(plan, v);
  if (v.fits) text += micro_batch_words(v) + time_words(v);
  return wrapped(text + remedy_words(v) + degrees_words(v));
}

nlohmann::ordered_json to_json(const Verdict& v) {
  nlohmann::ordered_json json;
  if (v.known) json["fits"] = v.fits;
  json["way"] = v.strategy_text;
  json["strategy"] = v.row.strategy().name;
  json["g"] = v.row.group();
  json["memory"] = v.row.needed;
  json["per_device_train_batch_size"] = v.micro_batch;
  if (v.largest_micro_batch > 0) json["largest_per_device_train_batch_size"] = v.largest_micro_batch;
  if (v.total_steps > 0) json["steps"] = v.total_steps;
  if (v.step_seconds) json["step_seconds"] = *v.step_seconds;
  if (v.run_seconds) json["run_seconds"] = *v.run_seconds;
  if (v.tokens_per_second) json["tokens_per_second"] = *v.tokens_per_second;
  if (!v.degrees.empty()) json["degrees"] = degrees_json(v);
  for (const RefusedDegrees& r : v.refused_degrees)
    json["refused_degrees"].push_back({{"tensor_parallel", r.tensor}, {"context_parallel", r.context}, {"reason", r.reason}});
  if (v.better) json["better"] = settings_of(*v.better);
  if (!v.remedies.empty()) {
    json["remedies"] = nlohmann::ordered_json::array();
    for (const Remedy& r : v.remedies)
      json["remedies"].push_back({{"change", r.change}, {"way", r.strategy_text}, {"memory", r.needed}});
  }
  return json;
}

}  // namespace qft::plan
