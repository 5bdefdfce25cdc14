// The small model, under the names that these tests have for it.
#pragma once

#include "qft/selftest/small_run.h"

namespace qft::parallel::testing {

using Case = selftest::SmallCase;
using TinyRun = selftest::SmallRun;
using selftest::global_batch;
using selftest::make_spec;
using selftest::Sequence;

}  // namespace qft::parallel::testing
