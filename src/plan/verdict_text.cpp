#include "qft/core/units.h"
#include "qft/plan/verdict.h"

#include "page.h"
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace qft::plan {
namespace {

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
    return fmt::format("{} on {} takes {} of the {} that a rank has", v.strategy_text, count_noun(plan.ranks, "rank"),
                       bytes_words(v.row.needed), bytes_words(plan.available));
  };
  if (v.fits) {
    const std::string host = v.row.memory().host > 0 ? fmt::format(", and {} of host memory", bytes_words(v.row.memory().host)) : "";
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

std::string to_text(const Plan& plan, const Verdict& v) {
  if (!v.known)
    return wrapped("unknown what fits: name a machine (--machine NAME; --machine list shows which), or set max_memory\n" +
                   time_words(v));
  std::string text = memory_words(plan, v);
  if (v.fits) text += micro_batch_words(v) + time_words(v);
  return wrapped(text + remedy_words(v));
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
  if (!v.remedies.empty()) {
    json["remedies"] = nlohmann::ordered_json::array();
    for (const Remedy& r : v.remedies)
      json["remedies"].push_back({{"change", r.change}, {"way", r.strategy_text}, {"memory", r.needed}});
  }
  return json;
}

}  // namespace qft::plan
