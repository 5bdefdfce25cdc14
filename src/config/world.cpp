// Compares a configuration with the ranks and steps of a job.
#include "qft/config/bound_field.h"
#include "qft/config/run_config.h"
#include "qft/core/error.h"
#include "qft/core/units.h"

#include <numeric>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

namespace qft::config {
namespace {

/// Names smaller degrees whose product divides `ranks`. They divide the given degrees: a model that allows those mostly allows
/// these.
std::string degrees_that_fit(const ParallelArgs& p, std::int64_t ranks) {
  std::vector<std::string> ways;
  const auto add = [&](std::string_view key, std::int64_t degree, std::int64_t rest) {
    if (degree > 1) ways.push_back(fmt::format("{} to {}", key, std::gcd(degree, rest)));
  };
  if (ranks % p.context_parallel == 0) add("tensor_parallel", p.tensor_parallel, ranks / p.context_parallel);
  if (ranks % p.tensor_parallel == 0) add("context_parallel", p.context_parallel, ranks / p.tensor_parallel);
  if (!ways.empty()) return fmt::format("{}", fmt::join(ways, ", or "));
  const std::int64_t tensor = std::gcd(p.tensor_parallel, ranks);
  return fmt::format("tensor_parallel to {} and context_parallel to {}", tensor, std::gcd(p.context_parallel, ranks / tensor));
}

/// "2 ranks", or "2 data ranks (8 ranks / tensor_parallel 2 / context_parallel 2)".
std::string describe_data_ranks(const RunConfig& c, int ranks) {
  const ParallelArgs& p = c.parallel;
  const std::string text = count_noun(c.data_ranks(ranks), p.data_rank_noun());
  if (p.ranks_of_a_data_rank() == 1) return text;
  return fmt::format("{} ({} ranks / tensor_parallel {} / context_parallel {})", text, ranks, p.tensor_parallel,
                     p.context_parallel);
}

void check_ranks(const RunConfig& c, const WorldClaim& claim, int ranks) {
  if (claim.kind == WorldClaim::Kind::ranks && claim.value != ranks)
    fail_config("{} is {}, but the job has {}: start with mpirun -np {}, or correct the file", claim.where, claim.value,
                count_noun(ranks, "rank"), claim.value);
  if (claim.kind == WorldClaim::Kind::data_ranks && claim.value != c.data_ranks(ranks))
    fail_config("{} is {}, but the job has {}: start with mpirun -np {}, or correct it", claim.where, claim.value,
                describe_data_ranks(c, ranks), claim.value * c.parallel.ranks_of_a_data_rank());
}

void check_batch(const RunConfig& c, const WorldClaim& claim, int ranks) {
  const TrainingArgs& t = c.training;
  const std::int64_t together = t.per_device_train_batch_size * c.data_ranks(ranks);
  const std::int64_t batch = t.global_batch_size.value_or(together * t.gradient_accumulation_steps);
  if (claim.kind == WorldClaim::Kind::global_batch && claim.value != batch)
    fail_config(
        "{} is {}, but a step has {} samples (per_device_train_batch_size {} * gradient_accumulation_steps {} * {}, or "
        "global_batch_size): make them agree",
        claim.where, claim.value, batch, t.per_device_train_batch_size, t.gradient_accumulation_steps,
        describe_data_ranks(c, ranks));
  if (claim.kind == WorldClaim::Kind::whole_micro_batches && claim.value % together != 0) {
    const std::int64_t below = claim.value / together * together;
    fail_config("{} is {}, which is not a multiple of micro-batch {} x {} = {}: set it to {}{}, or start another number of ranks",
                claim.where, claim.value, t.per_device_train_batch_size, describe_data_ranks(c, ranks), together,
                below > 0 ? fmt::format("{} or ", below) : "", below + together);
  }
}

}  // namespace

int RunConfig::data_ranks(int ranks) const {
  const std::int64_t together = parallel.ranks_of_a_data_rank();
  if (ranks % together == 0) return static_cast<int>(ranks / together);
  const std::int64_t below = ranks / together * together;
  std::vector<std::string> values;
  for (const auto& [key, degree] :
       {std::pair("tensor_parallel", parallel.tensor_parallel), std::pair("context_parallel", parallel.context_parallel)})
    if (degree > 1) values.push_back(fmt::format("{} is {}", at_key(*this, key), degree));
  fail_config(
      "{}: {} ranks compute the same samples, but the job has {}, not a multiple of {}: start {}{} ranks, or set {}{}",
      fmt::join(values, " and "), together, count_noun(ranks, "rank"), together, below > 0 ? fmt::format("{} or ", below) : "",
      below + together, degrees_that_fit(parallel, ranks),
      ranks > 1
          ? fmt::format(
                " (qft plan FILE --ranks {} tensor_parallel=1 context_parallel=1 lists the degrees that the model allows)", ranks)
          : "");
}

void RunConfig::check_world(int ranks) const {
  data_ranks(ranks);
  for (const WorldClaim& claim : world_claims) {
    check_ranks(*this, claim, ranks);
    check_batch(*this, claim, ranks);
  }
}

void RunConfig::set_degrees(std::int64_t tensor, std::int64_t context) {
  parallel.tensor_parallel = tensor;
  parallel.context_parallel = context;
  std::erase_if(world_claims, [](const WorldClaim& claim) {
    return claim.kind == WorldClaim::Kind::data_ranks || claim.kind == WorldClaim::Kind::whole_micro_batches;
  });
}

void RunConfig::run_as_one_process() {
  for (const auto& [key, degree] :
       {std::pair("tensor_parallel", parallel.tensor_parallel), std::pair("context_parallel", parallel.context_parallel)})
    if (degree != 1)
      notes.push_back(fmt::format("{} is {}, but one process runs here: {} 1 is used", at_key(*this, key), degree, key));
  set_degrees(1, 1);
}

void RunConfig::check_steps(std::int64_t total_steps) const {
  for (const WorldClaim& claim : world_claims)
    if (claim.kind == WorldClaim::Kind::steps && claim.value != total_steps)
      fail_config("{} is {}, but the run has {} steps, and the schedule ends with the run: make them agree, or write \"auto\"",
                  claim.where, claim.value, total_steps);
}

}  // namespace qft::config
