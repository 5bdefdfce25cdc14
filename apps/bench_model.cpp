// qft bench gemm | attention | step | machine: times the model's operations on this machine.
#include "qft/comm/exchange.h"
#include "qft/engine/data_setup.h"
#include "qft/engine/run_plan.h"
#include "qft/io/storage.h"
#include "qft/plan/measure.h"
#include "qft/plan/workload.h"

#include <cstdio>

#include "bench.h"
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace qft::apps {
namespace {

/// Uses the largest micro-batch of the run's data, unless options override it.
plan::MeasureOptions options_of(const config::CommandLine& line, const config::RunConfig& config, int item_sequences,
                                int data_ranks) {
  const auto data = engine::planned_data(config, data_ranks);
  const plan::Workload work =
      data ? plan::workload_of(*data->schedule, *data->pack) : plan::full_rows(config, data_ranks, item_sequences);
  plan::MeasureOptions o;
  o.tokens = work.largest.tokens;
  o.labels = work.largest.labels;
  o.sequence = data ? std::max<std::int64_t>(1, data->pack->num_tokens() / std::max<std::int64_t>(1, data->pack->num_sequences()))
                    : config.data.cutoff_len;
  const auto given = [&](const char* name, std::int64_t& value) {
    if (line.options.count(name) == 0) return;
    value = line.options[name].as<std::int64_t>();
    if (value < 2) fail_config("--{} is {}: set it to 2 or more", name, value);
  };
  given("tokens", o.tokens);
  given("sequence", o.sequence);
  if (line.options.count("tokens") > 0) o.labels = o.tokens / 2;
  o.sequence = std::min(o.sequence, o.tokens);
  return o;
}

void print(comm::Session& session, const config::CommandLine& line, const plan::MeasureOptions& o,
           const std::vector<plan::Sample>& samples) {
  if (session.rank() != 0) return;
  if (line.json) {
    const nlohmann::json json = {{"ranks", session.size()},
                                 {"tokens", o.tokens},
                                 {"sequence", o.sequence},
                                 {"labels", o.labels},
                                 {"rows", to_json(samples)}};
    fmt::print("{}\n", json.dump(2));
  } else {
    fmt::print("{} ranks, {} tokens in sequences of {}, {} labels; a layer, on the slowest rank\n{}", session.size(), o.tokens,
               o.sequence, o.labels, to_text(samples));
  }
}

enum class Measured { gemm, attention, step, machine };

int measure(Measured what, comm::Session& session, const config::CommandLine& line) {
  if (line.run_file.empty()) fail_config("qft bench {} measures a model's shapes: give a run file (.yaml)", line.words[0]);
  if (what == Measured::machine && line.options.count("output") == 0)
    fail_config("qft bench machine: --output FILE.yaml is missing");
  const auto [config, device] = prepare(session, line, config::Purpose::plan);
  std::optional<plan::MeasureOptions> options;
  plan::RunPlan run;
  comm::agreed(session.world(), [&, &config = config] {
    // Rates are measured with whole matrices, also if ranks will share them.
    run = engine::plan_of(config, engine::ModelSource::read(config, engine::Use::training), engine::RankShares{});
    options = options_of(line, config, run.objective.item_sequences, config.data_ranks(session.size()));
  });
  plan::Measurement here(session, run, device, *options);
  if (what == Measured::gemm) print(session, line, *options, here.gemm());
  if (what == Measured::attention) print(session, line, *options, here.attention());
  if (what == Measured::step) print(session, line, *options, here.step(here.machine()));
  if (what != Measured::machine) return kExitOk;
  const plan::Machine machine = here.machine();
  const std::string path = line.options["output"].as<std::string>();
  comm::agreed(session.world(), [&] {
    if (session.rank() == 0) io::atomic_write_file(io::posix_storage(), path, machine.to_yaml());
  });
  if (session.rank() == 0)
    fmt::print("{}", line.json ? fmt::format("{}\n", nlohmann::json{{"file", path}}.dump()) : machine.to_yaml());
  return kExitOk;
}

int run_gemm(comm::Session& s, const config::CommandLine& line) {
  return measure(Measured::gemm, s, line);
}
int run_attention(comm::Session& s, const config::CommandLine& line) {
  return measure(Measured::attention, s, line);
}
int run_step(comm::Session& s, const config::CommandLine& line) {
  return measure(Measured::step, s, line);
}
int run_machine(comm::Session& s, const config::CommandLine& line) {
  return measure(Measured::machine, s, line);
}

}  // namespace

extern const Benchmark kBenchGemm{"gemm", run_gemm};
extern const Benchmark kBenchAttention{"attention", run_attention};
extern const Benchmark kBenchStep{"step", run_step};
extern const Benchmark kBenchMachine{"machine", run_machine};

}  // namespace qft::apps
