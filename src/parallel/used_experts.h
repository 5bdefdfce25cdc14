// Decides which experts of a layer are gathered: only the experts that the micro-batches of a group use, if these are few.
// Private to parallel.
#pragma once

#include "qft/model/spec.h"
#include "qft/parallel/action.h"
#include "qft/parallel/ranges.h"

#include <cstdint>
#include <span>
#include <vector>

namespace qft::parallel {

/// The experts of one unit. On demand: a forward pass gathers experts as the routers select them, and the following backward pass
/// prefetches the same ones. If the pass before used more than half of the experts, both passes prefetch all experts instead,
/// because then little traffic is saved and the transfer could no longer overlap with the computation. After a step that used
/// half of them or fewer, on-demand gathering resumes. All ranks decide the same, as long as they pass the same arguments.
class UsedExperts {
 public:
  UsedExperts() = default;
  /// Empty for a layer without experts, or with quantised experts.
  UsedExperts(const model::ModelSpec& spec, const model::UnitSpec& unit);

  bool empty() const { return count_ == 0; }
  /// Returns the maximum number of elements that partial gathers stage in a buffer of `n` elements: the non-expert elements plus
  /// half of the experts.
  std::int64_t max_staged_elements(std::int64_t n) const;

  /// Call it when a forward pass of the unit starts.
  void start();
  /// True if experts are gathered as the routers select them.
  bool on_demand() const { return on_demand_; }
  /// Returns the experts that a micro-batch of this rank uses, one byte per expert; the ranks combine the masks with max.
  /// `begins`: begins of the experts' rows (ops::ExpertRows), or empty.
  std::vector<std::uint8_t> mask(std::span<const std::int64_t> begins) const;
  /// Adds experts that the ranks use together.
  void add(std::span<const std::uint8_t> mask);
  /// For passes that prefetch all experts: records the experts that this rank used in the step, then those that all ranks used.
  void record(std::span<const std::uint8_t> mask);
  const std::vector<std::uint8_t>& recorded() const { return recorded_; }
  void set_agreed(std::span<const std::uint8_t> seen);

  /// Returns the ranges to gather of a buffer with `n` elements.
  Ranges needed(model::Part part, std::int64_t n, GatherPurpose purpose) const;
  /// Returns the elements of these experts.
  Ranges of(std::span<const std::uint8_t> mask, model::Part part) const;

 private:
  /// The weights of all experts, one after the other.
  struct Stack {
    model::Part part;
    std::int64_t offset, numel;  ///< of one expert
  };
  bool more_than_half(std::span<const std::uint8_t> mask) const;
  Ranges without_experts(model::Part part, std::int64_t n) const;

  std::int64_t count_ = 0;
  std::vector<Stack> stacks_;  ///< sorted by offset
  std::vector<std::uint8_t> used_, recorded_;
  bool many_used_ = false;  ///< more than half of the experts were used, as far as the ranks last agreed
  bool on_demand_ = true;
};

}  // namespace qft::parallel
