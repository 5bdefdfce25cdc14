// The small model under the names that these tests use.
#pragma once

#include "qft/selftest/small_run.h"

#include "support/device_under_test.h"

namespace qft::parallel::testing {

using Case = selftest::SmallCase;
using selftest::global_batch;
using selftest::make_spec;
using selftest::Sequence;
using test::device_under_test;

/// Runs on the device under test, unless another is given; within a step the host must not wait for the device.
struct TinyRun : selftest::SmallRun {
  TinyRun(const Case& c, comm::Communicator& comm, c10::Device device = device_under_test())
      : SmallRun(without_waits(c), comm, device) {}

 private:
  static Case without_waits(Case c) {
    // Offloaded updates run on the host, and the host sorts the experts' rows.
    c.debug_sync = !c.offload.optimizer && !c.offload.weights && !c.model_type.ends_with("_moe");
    return c;
  }
};

}  // namespace qft::parallel::testing
