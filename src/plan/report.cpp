#include "qft/core/error.h"
#include "qft/core/units.h"
#include "qft/plan/plan.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "page.h"
#include "table.h"
#include <ATen/Parallel.h>
#include <nlohmann/json.hpp>

namespace qft::plan {
namespace {

std::string bytes(std::int64_t n) {
  return format_bytes(static_cast<double>(n));
}

/// The unit of the memory tables.
Unit memory_unit(const Plan& plan) {
  std::int64_t most = 0;
  for (const Row& row : plan.rows) most = std::max({most, row.needed, row.memory().host});
  return Unit::of(static_cast<double>(most));
}

std::string name_of(const Row& row) {
  return fmt::format("{}{}", row.strategy().name, row.requested ? " *" : "");
}

/// A heading, and the cell of each row.
struct Column {
  std::string heading;
  std::function<std::string(const Row&)> cell;
  bool shown = true;
};

/// Formats a table of rows, which begins with strategy and g.
std::string table(const std::string& title, const std::vector<Row>& rows, const std::vector<Column>& columns) {
  std::vector<std::vector<std::string>> all = {{"strategy"}, {"g"}};
  for (const Row& row : rows) {
    all[0].push_back(name_of(row));
    all[1].push_back(fmt::format("{}", row.group()));
  }
  for (const Column& column : columns) {
    if (!column.shown) continue;
    all.push_back({column.heading});
    for (const Row& row : rows) all.back().push_back(column.cell(row));
  }
  return title + "\n" + lay_out(all, 2);
}

bool any_row(const Plan& plan, const std::function<bool(const Row&)>& holds) {
  return std::ranges::any_of(plan.rows, holds);
}

std::string longest_text(const Plan& plan, const Row& row) {
  if (row.longest == 0) return "none";
  return fmt::format("{}{}", row.longest, row.longest == plan.run.spec->config.max_position_embeddings ? " (all)" : "");
}

std::string micro_batch_text(const Plan& plan) {
  const BatchShape& m = plan.workload.largest;
  return fmt::format("{} in {}", count_noun(std::max(m.tokens, m.expanded), "token"), count_noun(m.sequences, "sequence"));
}

std::string memory_table(const Plan& plan) {
  const Unit unit = memory_unit(plan);
  const auto part = [unit](auto member) { return [unit, member](const Row& row) { return unit.text(row.memory().*member); }; };
  const auto of_row = [unit](auto member) { return [unit, member](const Row& row) { return unit.text(row.*member); }; };
  const auto some = [&](auto member) { return any_row(plan, [member](const Row& row) { return row.memory().*member > 0; }); };
  const bool staged = any_row(plan, [](const Row& row) { return row.staged > 0; }),
             process = any_row(plan, [](const Row& row) { return row.process > 0; });
  const auto peak_overlap = [unit](const Row& row) { return unit.text(-row.memory().peak_overlap); };
  return table(fmt::format("memory of a rank in {}, for a micro-batch of {}", unit.name, micro_batch_text(plan)), plan.rows,
               {{"weights", part(&MemoryPlan::weights)},
                {"gathered", part(&MemoryPlan::gathered)},
                {"gradients", part(&MemoryPlan::gradients)},
                {"optimizer", part(&MemoryPlan::optimizer)},
                {"activations", part(&MemoryPlan::activations)},
                {"buffers", part(&MemoryPlan::buffers)},
                {"reference", part(&MemoryPlan::reference), some(&MemoryPlan::reference)},
                {"not at once", peak_overlap, some(&MemoryPlan::peak_overlap)},
                {"saving", of_row(&Row::staged), staged},
                {"process", of_row(&Row::process), process},
                {"total", of_row(&Row::needed)}}) +
         "g: micro-batches that pass a block together, under one gather of its weights\n";
}

/// Both columns are for micro-batches with equally many sequences.
std::string fits_table(const Plan& plan) {
  const Unit unit = memory_unit(plan);
  const bool known = plan.available > 0, host = any_row(plan, [](const Row& row) { return row.memory().host > 0; });
  const bool ways =
      any_row(plan, [&](const Row& row) { return row.run.schedule.recompute != plan.rows.front().run.schedule.recompute; });
  if (!known && !host) return {};
  std::string text = table(
      known ? fmt::format("what fits into the {} of a rank, a tenth of it left free", bytes(plan.available)) : "host memory",
      plan.rows,
      {{fmt::format("total {}", unit.name), [unit](const Row& row) { return unit.text(row.needed); }},
       {fmt::format("on the host {}", unit.name), [unit](const Row& row) { return unit.text(row.memory().host); }, host},
       {"fits", [](const Row& row) { return row.run.fits ? "yes" : "no"; }, known},
       {"longest sequence, tokens", [&](const Row& row) { return longest_text(plan, row); }, known},
       {"recomputation", [](const Row& row) { return row.run.schedule.recompute ? "on" : "off"; }, ways}});
  if (known)
    text += fmt::format("fits: a micro-batch of {}; longest sequence: of a micro-batch of {}, all as long\n",
                        micro_batch_text(plan), count_noun(plan.sequences, "sequence"));
  return "\n" + text;
}

std::string time_table(const Plan& plan) {
  const bool timed = plan.machine.has_value();
  double most = 0;
  for (const Row& row : plan.rows)
    most = std::max({most, row.time.gather_bytes, row.time.reduce_bytes, row.time.tensor_bytes, row.time.context_bytes});
  const Unit unit = Unit::of(most);
  const auto received = [unit](auto member) {
    return [unit, member](const Row& row) { return unit.text(std::round(row.time.*member)); };
  };
  const auto seconds = [](auto value) { return [value](const Row& row) { return seconds_text(std::invoke(value, row.time)); }; };
  const bool tensor = any_row(plan, [](const Row& row) { return row.time.tensor_bytes > 0; }),
             context = any_row(plan, [](const Row& row) { return row.time.context_bytes > 0; });
  std::string text =
      table(timed ? "a step: what a rank receives, and seconds" : "a step: what a rank receives", plan.rows,
            {{fmt::format("weights {}", unit.name), received(&StepTime::gather_bytes)},
             {fmt::format("gradients {}", unit.name), received(&StepTime::reduce_bytes)},
             {fmt::format("tensor {}", unit.name), received(&StepTime::tensor_bytes), tensor},
             {fmt::format("context {}", unit.name), received(&StepTime::context_bytes), context},
             {"step s", seconds(&StepTime::step), timed},
             {"compute s", seconds(&StepTime::compute), timed},
             {"link s", seconds(&StepTime::wire), timed},
             {"weight wait s", seconds(&StepTime::gather_wait), timed},
             {"grad wait s", seconds(&StepTime::reduce_wait), timed},
             {"tensor wait s", seconds(&StepTime::tensor_wait), timed && tensor},
             {"context wait s", seconds(&StepTime::context_wait), timed && context},
             {"serial s", seconds(&StepTime::serial), timed},
             {"tokens/s", [](const Row& row) { return fmt::format("{:.0f}", row.time.tokens / row.time.step); }, timed}});
  if (timed)
    text +=
        "link: the busiest link's transfers; waits: compute waits for weights, for gradients; serial: if nothing overlapped\n";
  if (tensor) text += "tensor: exchanges of the ranks that share matrices\n";
  if (context) text += "context: exchanges of the ranks that share sequences\n";
  return text;
}

/// Buffers on the CPU are planned for this process's threads.
std::string threads_text(const Plan& plan) {
  if (!plan.process.on_cpu) return {};
  const bool described = plan.machine && plan.machine->threads_per_rank == at::get_num_threads();
  return fmt::format(
      "  buffers are planned for {} compute threads per rank, as {}: set OMP_NUM_THREADS if the run's ranks will have other "
      "numbers\n",
      at::get_num_threads(), described ? "the machine's description says" : "in this process");
}

std::string machine_text(const Plan& plan) {
  if (!plan.machine)
    return fmt::format(
        "no machine description: bytes only, for ranks on {}; --machine NAME adds times and what fits (--machine list: "
        "which)\n{}",
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

/// "8 ranks", or "8 ranks, 4 data ranks of 2 each"
std::string ranks_text(const Plan& plan) {
  const auto& sharding = plan.rows.front().run.sharding;
  const int together = sharding.tensor_ranks * sharding.context_ranks;
  const std::string all = count_noun(plan.ranks, "rank");
  return together == 1 ? all : fmt::format("{}, {} of {} each", all, count_noun(plan.ranks / together, "data rank"), together);
}

nlohmann::ordered_json row_json(const Plan& plan, const Row& row) {
  const auto& m = row.memory();
  const StepTime& t = row.time;
  nlohmann::ordered_json json = {{"strategy", row.strategy().name},
                                 {"g", row.group()},
                                 {"micro_batches", row.run.micro_batches},
                                 {"shard_ranks", row.run.sharding.shard_ranks},
                                 {"replicas", row.run.sharding.replicas},
                                 {"context_ranks", row.run.sharding.context_ranks},
                                 {"tensor_ranks", row.run.sharding.tensor_ranks},
                                 {"recompute", row.run.schedule.recompute},
                                 {"asked", row.requested}};
  json["memory"] = {{"weights", m.weights},     {"gathered", m.gathered},       {"gradients", m.gradients},
                    {"optimizer", m.optimizer}, {"activations", m.activations}, {"buffers", m.buffers},
                    {"reference", m.reference}, {"apart", m.peak_overlap},      {"host", m.host},
                    {"staged", row.staged},     {"process", row.process},       {"kernels", row.run.footprint.kernels},
                    {"total", row.needed}};
  json["bytes"] = {{"weights", std::llround(t.gather_bytes)},
                   {"gradients", std::llround(t.reduce_bytes)},
                   {"tensor", std::llround(t.tensor_bytes)},
                   {"context", std::llround(t.context_bytes)}};
  if (plan.available > 0) {
    json["fits"] = row.run.fits;
    json["longest_sequence"] = row.longest;
  }
  if (plan.machine)
    json["seconds"] = {{"step", t.step},
                       {"compute", t.compute},
                       {"wire", t.wire},
                       {"gather", t.gather_wait},
                       {"reduce", t.reduce_wait},
                       {"tensor", t.tensor_wait},
                       {"context", t.context_wait},
                       {"serial", t.serial()},
                       {"transfers", t.transfers}};
  return json;
}

}  // namespace

std::string to_text(const Plan& plan) {
  const auto& c = plan.run.spec->config;
  std::string text;
  for (const std::string& note : plan.notes) text += fmt::format("note: {}\n", note);
  if (!plan.notes.empty()) text += "\n";
  text += fmt::format("model: {} {} parameters, {} trained; {}\ndata: {}\n", c.architecture,
                      format_count(static_cast<double>(plan.run.spec->num_params(false))),
                      format_count(static_cast<double>(plan.run.spec->num_params(true))), ranks_text(plan),
                      plan.workload.description);
  text += machine_text(plan) + "\n" + memory_table(plan) + fits_table(plan) + "\n" + time_table(plan);
  if (std::ranges::any_of(plan.rows, &Row::requested)) text += "\n* what the run file asks for\n";
  return wrapped(text);
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
