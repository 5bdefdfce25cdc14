// Simulates the action list of a step on two resources, the rank's compute and its links, to predict the step's time.
#pragma once

#include "qft/plan/machine.h"
#include "qft/plan/memory_plan.h"
#include "qft/plan/workload.h"

namespace qft::plan {

/// Means over the workload's steps: seconds, and bytes that a rank receives.
struct StepTime {
  double step = 0;
  double compute = 0;    ///< forward, backward and optimizer, if nothing else used the cores
  double wire = 0;       ///< busy seconds of the busiest link: shard group, replicas, host memory, tensor ranks or context ranks
  double transfers = 0;  ///< all transfers of all links one after another, with their latencies
  double gather_wait = 0;   ///< compute waits for weights
  double reduce_wait = 0;   ///< compute waits for gradients and for the ranks' agreement
  double tensor_wait = 0;   ///< compute waits in exchanges with the ranks that share matrices
  double context_wait = 0;  ///< compute waits in exchanges with the ranks that share sequences
  double gather_bytes = 0, reduce_bytes = 0, tensor_bytes = 0, context_bytes = 0;
  double tokens = 0;  ///< of all ranks

  /// Returns the time of a step without any overlap.
  double serial() const { return compute + transfers; }
};

/// Simulates the workload's steps one after another on the rank with most compute, and assumes that the other ranks keep pace.
///   - An action computes for seconds(work). Its transfers start at its place in the list and run one after another on the
///    group's link: each takes bytes / bandwidth, and ends no earlier than one latency per hop of its ring.
///   - acquire waits for its unit. Sharded: at most kMaxReductionsInFlight reductions are in flight. Replicated: reduce starts an
///    all-reduce when a bucket is full. The step waits for all reductions.
///   - Each forward and backward action, and the update, waits for its exchanges along the tensor and the context axis. Tensor
///    ranks are neighbours, then context ranks, then data ranks.
///   - While a link is busy, compute runs at 1 - compute_s_per_gb x bandwidth of its speed.
///   - Forward passes before the step, also those of a separate reference model, run one after another without overlap.
/// The first step warms up and is not counted if there are others. `run.tokens` is ignored: the workload has the sizes of its
/// micro-batches.
StepTime simulate(const RunPlan& run, const Machine& machine, const Workload& workload);

}  // namespace qft::plan
