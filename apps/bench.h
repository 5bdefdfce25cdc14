// The benchmarks of `qft bench`, one file each.
#pragma once

#include "subcommand.h"

namespace qft::apps {

struct Benchmark {
  const char* name;
  int (*run)(comm::Session&, const config::CommandLine&);
};

extern const Benchmark kBenchAllReduce;

}  // namespace qft::apps
