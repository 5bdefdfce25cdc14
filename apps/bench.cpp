#include "bench.h"

#include "qft/core/error.h"
#include "qft/device/backends.h"
#include "qft/device/device.h"

#include <string>

namespace qft::apps {
namespace {

namespace po = boost::program_options;

const Benchmark* const kBenchmarks[] = {&kBenchAllReduce, &kBenchGemm, &kBenchAttention, &kBenchStep, &kBenchMachine};

std::string names() {
  std::string text;
  for (const auto* b : kBenchmarks) text += text.empty() ? b->name : std::string("|") + b->name;
  return text;
}

config::CommandSpec spec() {
  config::CommandSpec s;
  s.name = "qft bench";
  s.summary =
      "measures this machine: allreduce times a collective over a range of sizes; with a run file, gemm and attention time the "
      "model's operations, step times a layer and the head and compares the times with the sum of their operations, and machine "
      "writes a machine description for qft plan";
  s.run_file = config::CommandSpec::RunFile::optional;
  s.purpose = config::Purpose::plan;
  s.words = names();
  s.min_words = 1;
  s.machine_readable = true;
  s.options.add_options()("device", po::value<std::string>()->default_value("auto"), device::device_words().c_str())(
      "collective", po::value<std::string>()->default_value("all_reduce"),
      "all_reduce, all_gather, reduce_scatter, broadcast or all_to_all")(
      "max-bytes", po::value<std::int64_t>()->default_value(std::int64_t{64} << 20), "largest buffer")(
      "seconds", po::value<double>()->default_value(0.2), "time spent on each size")(
      "tokens", po::value<std::int64_t>(), "tokens in the micro-batch; absent: as in the run's largest micro-batch")(
      "sequence", po::value<std::int64_t>(), "tokens in each sequence")("output", po::value<std::string>(),
                                                                        "machine: the file to write");
  s.choices["device"] = device::kind_names();
  for (const auto* b : kBenchmarks) s.choices[""].emplace_back(b->name);
  return s;
}

int run(comm::Session& session, const config::CommandLine& line) {
  for (const auto* b : kBenchmarks) {
    if (line.words[0] == b->name) return b->run(session, line);
  }
  fail_config("qft bench: unknown benchmark '{}': use {}", line.words[0], names());
}

}  // namespace

extern const Subcommand kBench{"bench", spec, run};

}  // namespace qft::apps
