// The time of a step: the action list that the executor runs, simulated on two resources, the rank's compute and its links.
#pragma once

#include "qft/plan/machine.h"
#include "qft/plan/memory_plan.h"
#include "qft/plan/workload.h"

namespace qft::plan {

/// Mean over the workload's steps: seconds, and bytes that a rank receives.
struct StepTime {
  double step = 0;
  double compute = 0;      ///< forward, backward and optimizer, if nothing else used the cores
  double wire = 0;         ///< the link that is busy for longest: of the shard group, of the replicas, to host memory
  double transfers = 0;    ///< all transfers of all links one after another, with their latencies
  double gather_wait = 0;  ///< compute waits for weights
  double reduce_wait = 0;  ///< ... for gradients and the ranks' agreement
  double gather_bytes = 0, reduce_bytes = 0;
  double tokens = 0;  ///< of all ranks

  /// What a step would take if nothing overlapped.
  double serial() const { return compute + transfers; }
};

/// Simulates the workload's steps one after another on the rank that has most to compute; the other ranks are assumed to be as
/// far as it is. Rules:
///  - an action computes for seconds(work); its transfers start when the list says so, and go one after another over the
///    group's link, each bytes / bandwidth, done at the earliest after a latency for each hop of its ring;
///  - acquire waits for its unit; at most kReductionsInFlight reductions are in flight (sharded), or reduce starts an
///    all-reduce when a bucket is full (replicated); the step waits for all;
///  - while a link is busy, compute goes on at 1 - compute_s_per_gb x bandwidth of its speed.
///  - forward passes before the step, of the reference's own model too, come one after another, and overlap with nothing else.
/// The first step warms up and is not counted where there are others. `run.tokens` is not used: the workload has
/// the sizes of its micro-batches.
StepTime simulate(const ExecutionConfig& run, const Machine& machine, const Workload& workload);

}  // namespace qft::plan
