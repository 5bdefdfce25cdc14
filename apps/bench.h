// The benchmarks of `qft bench`.
#pragma once

#include "subcommand.h"

namespace qft::apps {

struct Benchmark {
  const char* name;
  int (*run)(comm::Session&, const config::CommandLine&);
};

extern const Benchmark kBenchAllReduce, kBenchGemm, kBenchAttention, kBenchStep, kBenchMachine;

}  // namespace qft::apps
