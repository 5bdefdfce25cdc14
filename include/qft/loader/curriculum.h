// Curriculum learning: the level of difficulty from which the units of each step come. Pure functions of the table, the sizes of
// the levels and the run's length, so resuming needs no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace qft::loader {

/// Shares of the levels up to a point of the training.
struct CurriculumStage {
  double until = 1.0;          // fraction of all steps, in (0, 1]
  std::vector<double> shares;  // by level, sum 1
};

struct CurriculumTable {
  std::vector<std::string> levels;
  std::vector<CurriculumStage> stages;  // `until` ascends to 1
};

/// Parses the key `curriculum`: {"levels": [...], "stages": [{"until": percent, "shares": [...]}, ...]}. null means explain,
/// reasoning, topology with 80/20/0 up to 30 %, 40/40/20 up to 70 %, then 25/35/40. Shares are any non-negative numbers. Throws
/// ConfigError with the problem.
CurriculumTable parse_curriculum(const nlohmann::json& value);

/// Plans how many units of each level the steps take. Immutable. 8 bytes per step and level.
class CurriculumPlan {
 public:
  /// pool_sizes[l]: units of level l. Throws ConfigError if a level with a share has no units.
  CurriculumPlan(CurriculumTable table, std::vector<std::int64_t> pool_sizes, std::int64_t total_steps,
                 std::int64_t units_per_step);

  std::size_t num_levels() const { return table_.levels.size(); }
  const CurriculumTable& table() const { return table_; }
  /// Returns the units of `level` that the steps before `step` take; step in [0, total_steps].
  std::int64_t taken_before(std::int64_t step, std::size_t level) const;
  std::size_t stage_of(std::int64_t step) const;
  /// Returns the steps [first, end) of a stage; in a short run a stage may have no steps.
  std::pair<std::int64_t, std::int64_t> steps_of(std::size_t stage) const;
  /// Describes the requested and the actual shares of a stage: "curriculum, 0-30 %, steps 1-12: explain 80.2 % of 80 % ...".
  std::string describe(std::size_t stage) const;

 private:
  void plan_step(std::int64_t step, std::vector<double>& owed);

  CurriculumTable table_;
  std::vector<std::int64_t> pool_sizes_;
  std::int64_t total_steps_, units_per_step_;
  std::vector<std::int64_t> taken_;  // [steps + 1, levels]
};

}  // namespace qft::loader
