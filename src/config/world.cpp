// Compares a configuration with the ranks and steps of a job.
#include "qft/config/bound_field.h"
#include "qft/config/run_config.h"
#include "qft/core/error.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

namespace qft::config {
namespace {

/// Returns the divisors of `number` that are nearest to `degree`: the largest below it and the smallest above it.
std::vector<std::int64_t> nearest_divisors(std::int64_t degree, std::int64_t number) {
  std::vector<std::int64_t> found;
  for (std::int64_t d = std::min(degree - 1, number); d >= 1 && found.empty(); --d)
    if (number % d == 0) found.push_back(d);
  for (std::int64_t d = degree + 1; d <= number; ++d)
    if (number % d == 0) {
      found.push_back(d);
      break;
    }
  return found;
}

/// Names the degrees nearest to the given ones whose product divides `ranks`.
std::string degrees_that_fit(const ParallelArgs& p, std::int64_t ranks) {
  std::vector<std::string> ways;
  if (ranks % p.context_parallel == 0)
    ways.push_back(
        fmt::format("tensor_parallel to {}", fmt::join(nearest_divisors(p.tensor_parallel, ranks / p.context_parallel), " or ")));
  if (ranks % p.tensor_parallel == 0)
    ways.push_back(fmt::format("context_parallel to {}",
                               fmt::join(nearest_divisors(p.context_parallel, ranks / p.tensor_parallel), " or ")));
  if (!ways.empty()) return fmt::format("{}", fmt::join(ways, ", or "));
  const std::int64_t tensor = nearest_divisors(p.tensor_parallel, ranks).front();
  return fmt::format("tensor_parallel to {} and context_parallel to {}", tensor,
                     nearest_divisors(p.context_parallel, ranks / tensor).front());
}

/// "2 rank(s)", or "2 data rank(s) (8 ranks / tensor_parallel 2 / context_parallel 2)".
std::string describe_data_ranks(const RunConfig& c, int ranks) {
  const ParallelArgs& p = c.parallel;
  const std::string text = fmt::format("{} {}(s)", c.data_ranks(ranks), p.data_rank_noun());
  if (p.ranks_of_a_data_rank() == 1) return text;
  return fmt::format("{} ({} ranks / tensor_parallel {} / context_parallel {})", text, ranks, p.tensor_parallel,
                     p.context_parallel);
}

void check_ranks(const RunConfig& c, const WorldClaim& claim, int ranks) {
  if (claim.kind == WorldClaim::Kind::ranks && claim.value != ranks)
    fail_config("{} is {}, but the job has {} rank(s): start with mpirun -np {}, or correct the file", claim.where, claim.value,
                ranks, claim.value);
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
  const auto value = [&](std::string_view key, std::int64_t degree) {
    return fmt::format("{} is {}", at_key(*this, key), degree);
  };
  fail_config(
      "{} and {}: {} ranks compute the same samples, but the job has {} rank(s), not a multiple of {}: start {}{} ranks, or set {}",
      value("tensor_parallel", parallel.tensor_parallel), value("context_parallel", parallel.context_parallel), together, ranks,
      together, below > 0 ? fmt::format("{} or ", below) : "", below + together, degrees_that_fit(parallel, ranks));
}

void RunConfig::check_world(int ranks) const {
  data_ranks(ranks);
  for (const WorldClaim& claim : world_claims) {
    check_ranks(*this, claim, ranks);
    check_batch(*this, claim, ranks);
  }
}

void RunConfig::run_as_one_process() {
  for (const auto& [key, degree] : {std::pair("tensor_parallel", &ParallelArgs::tensor_parallel),
                                    std::pair("context_parallel", &ParallelArgs::context_parallel)})
    if (std::int64_t& value = parallel.*degree; value != 1) {
      notes.push_back(fmt::format("{} is {}, but one process runs here: {} 1 is used", at_key(*this, key), value, key));
      value = 1;
    }
  std::erase_if(world_claims, [](const WorldClaim& claim) {
    return claim.kind == WorldClaim::Kind::data_ranks || claim.kind == WorldClaim::Kind::whole_micro_batches;
  });
}

void RunConfig::check_steps(std::int64_t total_steps) const {
  for (const WorldClaim& claim : world_claims)
    if (claim.kind == WorldClaim::Kind::steps && claim.value != total_steps)
      fail_config("{} is {}, but the run has {} steps, and the schedule ends with the run: make them agree, or write \"auto\"",
                  claim.where, claim.value, total_steps);
}

}  // namespace qft::config
