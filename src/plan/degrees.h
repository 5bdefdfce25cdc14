// Compares numbers of ranks that share matrices and sequences. Private to plan.
#pragma once

#include "qft/plan/verdict.h"

#include <functional>
#include <string>
#include <vector>

namespace qft::plan {

/// Returns the row that the run would take under two degrees; nullptr if they are refused.
using RowUnder = std::function<std::optional<Row>(std::int64_t tensor, std::int64_t context)>;

/// Returns a row for each pair of degrees that `row_under` accepts: those that fit first, the fastest first; without times, those
/// with the smallest product.
std::vector<DegreesRow> compare_degrees(int ranks, bool timed, const RowUnder& row_under);

/// Returns the degrees to use instead of the run's: at least a twentieth faster, or the first that fits if the run does not fit.
/// nullptr: the run's are right, or none fit.
const DegreesRow* better_degrees(const std::vector<DegreesRow>& rows, const Row& taken, bool timed);

/// "tensor_parallel=2 context_parallel=1 strategy=zero3"
std::string settings_of(const DegreesRow& row);

/// Returns a table with the run's row marked, the refused degrees, and the settings to use; empty if there is nothing to compare.
std::string degrees_words(const Verdict& verdict);
nlohmann::ordered_json degrees_json(const Verdict& verdict);

}  // namespace qft::plan
