#include "qft/core/error.h"
#include "qft/core/units.h"
#include "qft/plan/plan.h"

#include <algorithm>
#include <cmath>

#include <ATen/Parallel.h>
#include <nlohmann/json.hpp>

namespace qft::plan {
namespace {

std::string bytes(double n) {
  return n == 0.0 ? "-" : format_bytes(n);
}
std::string bytes(std::int64_t n) {
  return bytes(static_cast<double>(n));
}

std::string seconds_text(double s) {
  return s >= 9.95 ? fmt::format("{:.1f}", s) : s >= 0.0995 ? fmt::format("{:.2f}", s) : fmt::format("{:.4f}", s);
}

std::string name_of(const Row& row) {
  return fmt::format("{}{}", row.strategy.name, row.asked ? " *" : "");
}

/// Columns as wide as their widest cell; the first one to the left.
std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (widths.size() <= i) widths.push_back(0);
      widths[i] = std::max(widths[i], row[i].size());
    }
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i)
      text += i == 0 ? fmt::format("{:<{}}", row[i], widths[i]) : fmt::format("  {:>{}}", row[i], widths[i]);
    text += '\n';
  }
  return text;
}

std::string longest_text(const Plan& plan, const Row& row) {
  if (row.longest == 0) return "none";
  return fmt::format("{}{}", row.longest, row.longest == plan.recipe.spec.config.max_position_embeddings ? " (all)" : "");
}

std::string memory_table(const Plan& plan) {
  bool apart = false, host = false, copies = false, reference = false,
       ways = false;  // ways: rows differ in what they compute again
  for (const Row& row : plan.rows) {
    apart |= row.memory.apart > 0;
    host |= row.memory.host > 0;
    copies |= row.staged > 0;
    reference |= row.memory.reference > 0;
    ways |= row.policy.recompute != plan.rows.front().policy.recompute;
  }
  std::vector<std::vector<std::string>> rows = {
      {"memory of a rank", "g", "weights", "gathered", "gradients", "optimizer", "activations", "buffers"}};
  if (reference) rows[0].emplace_back("reference");
  if (apart) rows[0].emplace_back("not at once");
  if (copies) rows[0].emplace_back("saving");
  if (plan.process.bytes > 0) rows[0].emplace_back("process");
  if (host) rows[0].emplace_back("on the host");
  rows[0].emplace_back("total");
  if (plan.available > 0) rows[0].insert(rows[0].end(), {"fits", "longest sequence"});
  if (ways) rows[0].emplace_back("recomputation");
  for (const Row& row : plan.rows) {
    const auto& m = row.memory;
    rows.push_back({name_of(row), fmt::format("{}", row.group), bytes(m.weights), bytes(m.gathered), bytes(m.gradients),
                    bytes(m.optimizer), bytes(m.activations), bytes(m.buffers)});
    if (reference) rows.back().push_back(bytes(m.reference));
    if (apart) rows.back().push_back(fmt::format("-{}", bytes(m.apart)));
    if (copies) rows.back().push_back(bytes(row.staged));
    if (plan.process.bytes > 0) rows.back().push_back(bytes(row.process));
    if (host) rows.back().push_back(bytes(m.host));
    rows.back().push_back(bytes(row.needed));
    if (plan.available > 0) rows.back().insert(rows.back().end(), {row.fits ? "yes" : "no", longest_text(plan, row)});
    if (ways) rows.back().emplace_back(row.policy.recompute ? "on" : "off");
  }
  return table(rows) + "(g: micro-batches that pass a block together, under one gather of its weights)\n";
}

std::string time_table(const Plan& plan) {
  std::vector<std::vector<std::string>> rows = {{"a step", "g", "weights received", "gradients received"}};
  if (plan.machine)
    for (const char* title :
         {"seconds", "compute", "wire", "waits for weights", "for gradients", "tokens/s", "nothing overlapped"})
      rows[0].emplace_back(title);
  for (const Row& row : plan.rows) {
    const StepTime& t = row.time;
    rows.push_back(
        {name_of(row), fmt::format("{}", row.group), bytes(std::round(t.gather_bytes)), bytes(std::round(t.reduce_bytes))});
    if (!plan.machine) continue;
    for (const double s : {t.step, t.compute, t.wire, t.gather_wait, t.reduce_wait}) rows.back().push_back(seconds_text(s));
    rows.back().push_back(fmt::format("{:.0f}", t.tokens / t.step));
    rows.back().push_back(seconds_text(t.serial()));
  }
  return table(rows);
}

/// Buffers on the CPU are planned for this process's threads.
std::string threads_text(const Plan& plan) {
  if (!plan.process.on_cpu) return {};
  const bool described = plan.machine && plan.machine->threads_per_rank == at::get_num_threads();
  return fmt::format(
      "  buffers are planned for {} compute threads a rank, as {}: set OMP_NUM_THREADS where the run's ranks will have others\n",
      at::get_num_threads(), described ? "the machine's description says" : "in this process");
}

std::string machine_text(const Plan& plan) {
  if (!plan.machine)
    return fmt::format("no machine description: bytes only, for ranks on {}; --machine FILE adds times and what fits\n{}",
                       plan.process.on_cpu    ? "the CPU, as here"
                       : plan.process.unified ? "GPUs with unified memory, as here"
                                              : "GPUs",
                       threads_text(plan));
  const Machine& m = *plan.machine;
  std::string assumed;
  for (const std::string& key : m.assumed) assumed += (assumed.empty() ? "" : ", ") + key;
  std::string text = fmt::format("machine: {}\n", m.name);
  if (!m.source.empty()) text += fmt::format("  numbers: {}\n", m.source);
  if (!assumed.empty()) text += fmt::format("  assumed, not measured: {}\n", assumed);
  return text + fmt::format("  a rank has {}; a row fits if it needs at most nine tenths of that\n{}", bytes(plan.available),
                            threads_text(plan));
}

nlohmann::ordered_json row_json(const Plan& plan, const Row& row) {
  const auto& m = row.memory;
  const StepTime& t = row.time;
  nlohmann::ordered_json json = {{"strategy", row.strategy.name},
                                 {"g", row.group},
                                 {"micro_batches", row.max_micro_batches},
                                 {"shard_ranks", row.shard_ranks},
                                 {"replicas", row.replicas},
                                 {"recompute", row.policy.recompute},
                                 {"asked", row.asked}};
  json["memory"] = {{"weights", m.weights},
                    {"gathered", m.gathered},
                    {"gradients", m.gradients},
                    {"optimizer", m.optimizer},
                    {"activations", m.activations},
                    {"buffers", m.buffers},
                    {"reference", m.reference},
                    {"apart", m.apart},
                    {"host", m.host},
                    {"staged", row.staged},
                    {"process", row.process},
                    {"total", row.needed}};
  json["bytes"] = {{"weights", std::llround(t.gather_bytes)}, {"gradients", std::llround(t.reduce_bytes)}};
  if (plan.available > 0) {
    json["fits"] = row.fits;
    json["longest_sequence"] = row.longest;
  }
  if (plan.machine)
    json["seconds"] = {{"step", t.step},          {"compute", t.compute},    {"wire", t.wire},
                       {"gather", t.gather_wait}, {"reduce", t.reduce_wait}, {"serial", t.serial()}};
  return json;
}

}  // namespace

std::string to_text(const Plan& plan) {
  const auto& c = plan.recipe.spec.config;
  std::string text =
      fmt::format("model: {} {} parameters, {} trained; {} ranks\ndata: {}\n", c.architecture,
                  format_count(static_cast<double>(plan.recipe.spec.num_params(false))),
                  format_count(static_cast<double>(plan.recipe.spec.num_params(true))), plan.ranks, plan.workload.description);
  text += machine_text(plan) + "\n" + memory_table(plan) + "\n" + time_table(plan);
  if (std::ranges::any_of(plan.rows, &Row::asked)) text += "\n* what the run file asks for\n";
  for (const std::string& note : plan.notes) text += fmt::format("note: {}\n", note);
  return text;
}

nlohmann::ordered_json to_json(const Plan& plan) {
  nlohmann::ordered_json json = {{"ranks", plan.ranks}, {"data", plan.workload.description}};
  if (plan.machine)
    json["machine"] = {{"name", plan.machine->name}, {"source", plan.machine->source}, {"assumed", plan.machine->assumed}};
  if (plan.available > 0) json["memory_of_a_rank"] = plan.available;
  if (plan.process.on_cpu) json["threads"] = at::get_num_threads();
  if (!plan.notes.empty()) json["notes"] = plan.notes;
  json["rows"] = nlohmann::ordered_json::array();
  for (const Row& row : plan.rows) json["rows"].push_back(row_json(plan, row));
  return json;
}

}  // namespace qft::plan
